package dockerfile_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/build/dockerfile"
	"github.com/carrel-dev/carrel/internal/build/plan"
)

// bases are what the tests' images look like.
var bases = map[string]plan.Config{
	"debian": {Env: []plan.Variable{{Name: "PATH", Value: "/usr/bin:/bin"}}, Cmd: []string{"bash"}},
	"node": {Env: []plan.Variable{{Name: "PATH", Value: "/usr/bin"},
		{Name: "NODE_VERSION", Value: "22"}}, User: "node", Workdir: "/app",
		Entrypoint: []string{"docker-entrypoint.sh"}, Cmd: []string{"node"}},
	"redis":   {Cmd: []string{"redis-server"}},
	"trigger": {OnBuild: []string{"COPY . /src", "RUN make"}},
	"loop":    {OnBuild: []string{"COPY --from=first /a /b"}},
	"evil":    {OnBuild: []string{"FROM other"}},
	"t:base":  {User: "user", Workdir: "/home/user"},
}

func resolve(_ context.Context, s plan.Source) (plan.Config, error) {
	name := s.Image
	if s.Template != "" {
		name = "t:" + s.Template
	}
	c, ok := bases[name]
	if !ok {
		return plan.Config{}, &carrel.Error{Kind: carrel.NotFound, Err: errors.New("no such image"),
			Hint: "spell it right"}
	}
	return c, nil
}

// describe writes a plan as lines that a test can compare.
func describe(p plan.Plan) string {
	var b strings.Builder
	for i, s := range p.Stages {
		mark := ""
		if i == p.Result {
			mark = " *"
		}
		fmt.Fprintf(&b, "stage %d %s line %d from %s%s\n", i+1, s.Name, s.Line, source(s.From), mark)
		for _, step := range s.Steps {
			fmt.Fprintf(&b, "%d %s\n", step.Line, op(step.Op))
		}
	}
	return b.String()
}

func source(s plan.Source) string {
	switch {
	case s.Scratch:
		return "scratch"
	case s.Stage > 0:
		return fmt.Sprint("stage ", s.Stage)
	case s.Template != "":
		return "template " + s.Template
	case s.Image != "":
		return s.Image
	}
	return "context"
}

func op(o plan.Op) string {
	switch o := o.(type) {
	case *plan.Run:
		text := fmt.Sprintf("run %q", o.Args)
		if o.Stdin != "" {
			text += fmt.Sprintf(" <%q", o.Stdin)
		}
		for _, v := range o.Env {
			text += fmt.Sprintf(" %s=%s", v.Name, v.Value)
		}
		for _, m := range o.Mounts {
			m := m
			text += fmt.Sprintf(
				" [%s id=%s target=%s env=%s from=%s path=%s mode=%o %d:%d ro=%v required=%v size=%d %s]",
				m.Kind, m.ID, m.Target,
				m.Env, source(m.From), m.Path, m.Mode, m.UID, m.GID, m.ReadOnly, m.Required, m.Size, m.Sharing)
		}
		if o.Offline {
			text += " offline"
		}
		return text
	case *plan.Copy:
		return fmt.Sprintf(
			"copy %s %q %q %q to %s owner=%s mode=%s unpack=%v,%v parents=%v exclude=%q link=%v sum=%s",
			source(o.From),
			o.Paths, o.URLs, o.Inline, o.Target, o.Owner, o.Mode, o.Unpack, o.UnpackURLs, o.Parents,
			o.Exclude, o.Link, o.Checksum)
	case *plan.Workdir:
		return "workdir " + o.Path + " " + o.Owner
	}
	return "config"
}

const plain = " owner= mode= unpack=false,false parents=false exclude=[] link=false sum="

// TestPlan shows the plan of a Dockerfile of each kind.
func TestPlan(t *testing.T) {
	for _, c := range []struct {
		name, text, want string
		options          dockerfile.Options
	}{
		{name: "shell and exec form",
			text: "FROM debian\nRUN echo $HOME\nRUN [\"echo\", \"$HOME\"]\nSHELL [\"/bin/bash\",\"-ec\"]\nRUN a \\\n  && b\n",
			want: `stage 1  line 1 from debian *
2 run ["/bin/sh" "-c" "echo $HOME"]
3 run ["echo" "$HOME"]
4 config
5 run ["/bin/bash" "-ec" "a   && b"]
`},
		{name: "arguments",
			text:    "ARG V=1\nARG W=${V}2\nFROM debian\nARG V\nARG W=local\nARG X Y=$V-$X\nENV W=env\nRUN x\n",
			options: dockerfile.Options{Args: map[string]string{"X": "given"}},
			want: `stage 1  line 3 from debian *
7 config
8 run ["/bin/sh" "-c" "x"] V=1 X=given Y=1-given
`},
		{name: "an argument in FROM", text: "ARG BASE=ubuntu\nFROM ${BASE}\n",
			options: dockerfile.Options{Args: map[string]string{"BASE": "debian"}},
			want:    "stage 1  line 2 from debian *\n"},
		{name: "the platform's arguments",
			text:    "FROM --platform=$BUILDPLATFORM debian\nARG TARGETARCH\nRUN x\n",
			options: dockerfile.Options{Platform: "linux/arm64"},
			want:    "stage 1  line 1 from debian *\n3 run [\"/bin/sh\" \"-c\" \"x\"] TARGETARCH=arm64\n"},
		{name: "variables of the base",
			text: "FROM node\nCOPY a $NODE_VERSION/${X:-y}/\nWORKDIR sub\nWORKDIR ../$NODE_VERSION\nCOPY b .\n",
			want: `stage 1  line 1 from node *
2 copy context ["a"] [] [] to /app/22/y/` + plain + `
3 workdir /app/sub node
4 workdir /app/22 node
5 copy context ["b"] [] [] to /app/22/` + plain + "\n"},
		{name: "stages that are needed",
			text: "FROM debian AS one\nRUN 1\nFROM missing AS two\nRUN 2\nFROM debian AS Three\nCOPY --from=0 /a /b\nFROM three\nCOPY --from=THREE /c /d\nCOPY --from=other:1 /e /f\n",
			want: `stage 1 one line 1 from debian
2 run ["/bin/sh" "-c" "1"]
stage 2 three line 5 from debian
6 copy stage 1 ["/a"] [] [] to /b` + plain + `
stage 3  line 7 from stage 2 *
8 copy stage 2 ["/c"] [] [] to /d` + plain + `
9 copy other:1 ["/e"] [] [] to /f` + plain + "\n"},
		{name: "a target", text: "FROM debian AS one\nRUN 1\nFROM missing AS two\n",
			options: dockerfile.Options{Target: "ONE"},
			want:    "stage 1 one line 1 from debian *\n2 run [\"/bin/sh\" \"-c\" \"1\"]\n"},
		{name: "a template", text: "FROM template://base\nCOPY a .\n",
			want: "stage 1  line 1 from template base *\n2 copy context [\"a\"] [] [] to /home/user/" +
				plain + "\n"},
		{name: "scripts",
			text: "FROM debian\nRUN <<EOF\necho $A\nEOF\nRUN <<-X\n\techo\n\tX\nRUN cat <<A <<-'B' >f\n$1\nA\n\t2\nB\nRUN <<EOF\n#!/usr/bin/env python3\nprint(1)\nEOF\n",
			want: `stage 1  line 1 from debian *
2 run ["/bin/sh" "-c" "echo $A\n"]
5 run ["/bin/sh" "-c" "echo\n"]
8 run ["/bin/sh" "-c" "cat <<A <<-'B' >f\n$1\nA\n\t2\nB"]
13 run ["/bin/sh" "-c" "f=$(mktemp) && cat >\"$f\" && chmod 700 \"$f\" || exit; \"$f\" </dev/null; s=$?; rm -f \"$f\"; exit $s"] <"#!/usr/bin/env python3\nprint(1)\n"
`},
		{name: "files in the file",
			text: "FROM debian\nARG A=1\nCOPY <<a.txt <<\"b\" c /d/\nA=$A \"q\"\na.txt\nB=$A\nb\n",
			want: `stage 1  line 1 from debian *
3 copy context ["c"] [] [{"a.txt" "A=1 \"q\"\n"} {"b" "B=$A\n"}] to /d/` + plain + "\n"},
		{name: "flags of COPY",
			text: "FROM debian\nCOPY --chown=1:2 --chmod=u=rwX,go= --link --parents --exclude=*.md --exclude=x a b/ c/\n",
			want: "stage 1  line 1 from debian *\n2 copy context [\"a\" \"b/\"] [] [] to /c/ owner=1:2 mode=u=rwX,go= unpack=false,false parents=true exclude=[\"*.md\" \"x\"] link=true sum=\n"},
		{name: "ADD",
			text: "FROM debian\nADD a.tgz /\nADD --unpack=false a.tgz /x\nADD --checksum=sha256:" +
				strings.Repeat("a", 64) + " https://example.com/a /b\n",
			want: `stage 1  line 1 from debian *
2 copy context ["a.tgz"] [] [] to / owner= mode= unpack=true,false parents=false exclude=[] link=false sum=
3 copy context ["a.tgz"] [] [] to /x` + plain + `
4 copy context [] ["https://example.com/a"] [] to /b owner= mode= unpack=true,false parents=false exclude=[] link=false sum=sha256:` + strings.Repeat("a", 64) + "\n"},
		{name: "mounts",
			text: "FROM debian AS x\nFROM debian\nARG D=/c\nRUN --mount=type=cache,target=$D,sharing=locked,uid=5,mode=0700 --mount=from=x,source=/s,target=t,rw " +
				"--mount=type=secret,id=tok --mount=type=secret,id=e,env=E,required --mount=type=tmpfs,target=/t,size=1024 --network=none x\n",
			want: `stage 1 x line 1 from debian
stage 2  line 2 from debian *
4 run ["/bin/sh" "-c" "x"] D=/c [cache id=/c target=/c env= from=context path= mode=700 5:0 ro=false required=false size=0 locked]` +
				` [bind id= target=/t env= from=stage 1 path=/s mode=0 0:0 ro=false required=false size=0 ]` +
				` [secret id=tok target=/run/secrets/tok env= from=context path= mode=0 0:0 ro=true required=false size=0 ]` +
				` [secret id=e target= env=E from=context path= mode=0 0:0 ro=true required=true size=0 ]` +
				` [tmpfs id= target=/t env= from=context path= mode=0 0:0 ro=false required=false size=1024 ] offline
`},
		{name: "what the base's ONBUILD does", text: "FROM trigger\nRUN last\n",
			want: `stage 1  line 1 from trigger *
1 copy context ["."] [] [] to /src` + plain + `
1 run ["/bin/sh" "-c" "make"]
2 run ["/bin/sh" "-c" "last"]
`},
		{name: "ONBUILD within the file, that needs a stage",
			text: "FROM debian AS first\nFROM loop AS second\nONBUILD RUN child\nFROM second\n",
			want: `stage 1 first line 1 from debian
stage 2 second line 2 from loop
2 copy stage 1 ["/a"] [] [] to /b` + plain + `
3 config
stage 3  line 4 from stage 2 *
4 run ["/bin/sh" "-c" "child"]
`},
		{name: "another escape", text: "# escape=`\nFROM debian\nRUN a `\n  b\nCOPY a `$x\n", want: `stage 1  line 2 from debian *
3 run ["/bin/sh" "-c" "a   b"]
5 copy context ["a"] [] [] to /$x` + plain + "\n"},
		{name: "a syntax directive", text: "# syntax=docker/dockerfile:1.7\nFROM scratch\nCOPY a /\n",
			want: "stage 1  line 2 from scratch *\n3 copy context [\"a\"] [] [] to /" + plain + "\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := describe(mustPlan(t, c.text, c.options)); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// mustPlan plans a Dockerfile that is right.
func mustPlan(t *testing.T, text string, o dockerfile.Options) plan.Plan {
	t.Helper()
	f, err := dockerfile.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.Plan(t.Context(), o, resolve)
	if err != nil {
		t.Fatalf("%v (hint: %s)", err, carrel.HintOf(err))
	}
	return p
}

// last returns the configuration of a plan's result.
func last(p plan.Plan) plan.Config {
	s := p.Stages[p.Result]
	if len(s.Steps) == 0 {
		return s.Config
	}
	return s.Steps[len(s.Steps)-1].Config
}

// TestConfig shows what instructions do to the configuration.
func TestConfig(t *testing.T) {
	p := mustPlan(t, `FROM node
ENV A=1 B="two words" PATH=/opt:$PATH
ENV A=2 C=$A
USER 1000:1000
LABEL a=b "c d"="e f"
EXPOSE 80 8000-8010/UDP 80/tcp
VOLUME /data /x
STOPSIGNAL SIGINT
`, dockerfile.Options{})
	got := fmt.Sprintf("%v %s %s %v %v %s %v", last(p).Env, last(p).User, last(p).Workdir,
		last(p).Labels, last(p).Expose, last(p).StopSignal, last(p).Volumes)
	const want = `[{PATH /opt:/usr/bin} {NODE_VERSION 22} {A 2} {B two words} {C 1}] 1000:1000 /app [{a b} {c d e f}] [80/tcp 8000-8010/udp] SIGINT [/data /x]`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if first := p.Stages[0].Steps[0].Config.Env; len(first) != 4 || first[2].Value != "1" {
		t.Errorf("a later step changed the configuration of an earlier one: %v", first)
	}
	if env := last(mustPlan(t, "FROM scratch\nLABEL a=b\n", dockerfile.Options{})).Env; len(
		env) != 1 || !strings.Contains(env[0].Value, "/usr/local/bin") {
		t.Errorf("a base without PATH gives %v", env)
	}
}

// TestStart shows which ENTRYPOINT and CMD become a start command, and how a check of health
// becomes one of readiness.
func TestStart(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"FROM node\n", ""}, // its prompt
		{"FROM redis\n", "redis-server"},
		{"FROM redis\nRUN x\n", "redis-server"},
		{"FROM debian\nCMD npm start\n", "/bin/sh -c npm start"},
		{"FROM debian\nCMD [\"npm\", \"run a\"]\n", "npm run a"},
		{"FROM node\nCMD [\"server.js\"]\n", "docker-entrypoint.sh server.js"},
		{"FROM node\nENTRYPOINT [\"serve\"]\n", "serve"}, // the base's CMD was for another program
		{"FROM debian\nCMD [\"x\"]\nENTRYPOINT [\"serve\"]\n", "serve x"},
		{"FROM debian AS a\nCMD serve\nFROM a\nRUN x\n", "/bin/sh -c serve"},
		{"FROM debian\nSHELL [\"/bin/bash\",\"-c\"]\nCMD a && b\n", "/bin/bash -c a && b"},
		{"FROM debian\nCMD bash\n", ""},
		{"FROM debian\nCMD [\"/bin/bash\", \"-l\"]\n", ""},
		{"FROM debian\nCMD [\"python3.12\"]\n", ""},
		{"FROM debian\nCMD [\"python3\", \"app.py\"]\n", "python3 app.py"},
		{"FROM node\nCMD [\"node\"]\n", ""},
		{"FROM debian\nENTRYPOINT [\"tini\", \"--\"]\nCMD [\"sh\"]\n", ""},
		{"FROM debian\nCMD tail -f /dev/null\n", ""},
		{"FROM debian\nCMD [\"sleep\", \"infinity\"]\n", ""},
		{"FROM debian\nCMD [\"bash\", \"-c\", \"sleep infinity\"]\n", ""},
		{"FROM debian\nCMD sleep 1 && serve\n", "/bin/sh -c sleep 1 && serve"},
	} {
		end := last(mustPlan(t, c.text, dockerfile.Options{}))
		if got := strings.Join(append(end.Entrypoint, end.Cmd...), " "); got != c.want ||
			end.Start != "" {
			t.Errorf("%q: it starts %q, want %q", c.text, got, c.want)
		}
	}
	for _, c := range []struct{ text, want string }{
		{"HEALTHCHECK CMD curl -f localhost\nCMD serve\n", "&{curl -f localhost 1s 30s 1m30s 1}"},
		{"HEALTHCHECK --start-interval=2s --interval=5s --timeout=3s --start-period=1m --retries=2 CMD [\"a\", \"b c\"]\nCMD serve\n", "&{a 'b c' 2s 3s 1m10s 1}"},
		{"HEALTHCHECK CMD x\nHEALTHCHECK NONE\nCMD serve\n", "<nil>"},
		{"HEALTHCHECK CMD x\n", "<nil>"}, // nothing starts
	} {
		if got := fmt.Sprint(last(mustPlan(t, "FROM debian\n"+c.text,
			dockerfile.Options{})).Ready); got != c.want {
			t.Errorf("%q: ready %s, want %s", c.text, got, c.want)
		}
	}
}

// TestRefusals shows that each thing that cannot be built is refused with its line.
func TestRefusals(t *testing.T) {
	other := "linux/arm64"
	if runtime.GOARCH == "arm64" {
		other = "linux/amd64"
	}
	long := "FROM debian\nARG A=" + strings.Repeat("x", 1000) + "\n"
	for range 20 {
		long += "ARG A=$A$A\n"
	}
	for _, c := range []struct {
		name, text string
		kind       carrel.Kind
		want, hint string
	}{
		{"nothing", "", carrel.Invalid, "it is empty", "FROM"},
		{"comments only", "# hi\n", carrel.Invalid, "", ""},
		{"no FROM", "ARG A\n", carrel.Invalid, "no FROM", "FROM"},
		{"a zero byte", "FROM debian\nRUN a\x00b\n", carrel.Invalid, "line 2", ""},
		{"another text", "FROM debian\nRUN a\xff\n", carrel.Invalid, "line 2", ""},
		{"an unknown word", "FROM debian\nFOO x\n", carrel.Invalid, "line 2: unknown instruction: FOO",
			""},
		{"an unknown flag", "FROM debian\n\nRUN --foo x\n", carrel.Invalid, "line 3: unknown flag: --foo",
			""},
		{"an open heredoc", "FROM debian\nRUN <<EOF\nx\n", carrel.Invalid, "line 2: unterminated heredoc",
			""},
		{"another frontend", "# syntax=example.com/other:1\nFROM debian\n", carrel.Unsupported, "line 1",
			"docker/dockerfile"},
		{"RUN of nothing", "FROM debian\nRUN\n", carrel.Invalid, "line 2", ""},
		{"ssh", "FROM debian\nRUN --mount=type=ssh x\n", carrel.Unsupported, "line 2", "secret"},
		{"this machine's network", "FROM debian\nRUN --network=host x\n", carrel.Unsupported, "line 2",
			"--allow"},
		{"no sandbox", "FROM debian\nRUN --security=insecure x\n", carrel.Unsupported, "line 2", ""},
		{"another platform", "FROM debian\nFROM --platform=" + other + " debian\n", carrel.Unsupported,
			"line 2", "--platform"},
		{"an unknown base", "FROM nothing\n", carrel.NotFound, "line 1: FROM nothing: no such image",
			"spell it right"},
		{"an empty base", "ARG A\nFROM $A\n", carrel.Invalid, "line 2", "--build-arg"},
		{"a wrong template", "FROM template://..//\n", carrel.Invalid, "line 1", ""},
		{"a later stage", "FROM debian AS a\nCOPY --from=b x y\nFROM debian AS b\nFROM a\n",
			carrel.Invalid, "line 2", "move the stage up"},
		{"itself", "FROM debian AS a\nCOPY --from=0 x y\n", carrel.Invalid, "line 2", ""},
		{"a stage that is not there", "FROM debian\nCOPY --from=7 x y\n", carrel.Invalid, "line 2", ""},
		{"several to one", "FROM debian\nCOPY a b c\n", carrel.Invalid, "line 2",
			"end the target with /"},
		{"a wrong mode", "FROM debian\nCOPY --chmod=999 a b\n", carrel.Invalid, "line 2", "755"},
		{"a repository", "FROM debian\nADD https://example.com/a.git#main /x\n", carrel.Unsupported,
			"line 2", "git clone"},
		{"a wrong checksum", "FROM debian\nADD --checksum=md5:1 https://example.com/a /x\n",
			carrel.Invalid, "line 2", ""},
		{"a checksum of a local file", "FROM debian\nADD --checksum=sha256:" + strings.Repeat("0", 64) +
			" a /x\n", carrel.Invalid, "line 2", ""},
		{"an empty directory", "FROM debian\nWORKDIR $X\n", carrel.Invalid, "line 2", ""},
		{"a wrong port", "FROM debian\nEXPOSE 70000\n", carrel.Invalid, "line 2", "65535"},
		{"a wrong ONBUILD", "FROM evil\n", carrel.Invalid, "line 1: ONBUILD FROM other of the base", ""},
		{"a variable that must be set", "FROM debian\nCOPY a ${X:?say where}\n", carrel.Invalid, "line 2",
			""},
		{"a mount without a target", "FROM debian\nRUN --mount=type=cache x\n", carrel.Invalid, "line 2",
			""},
		{"a mount over everything", "FROM debian\nRUN --mount=type=tmpfs,target=/ x\n", carrel.Invalid,
			"line 2", ""},
		{"a word that grows", long, carrel.Exhausted, "line 1", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := dockerfile.Parse(c.text)
			if err == nil {
				_, err = f.Plan(t.Context(), dockerfile.Options{}, resolve)
			}
			if carrel.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(carrel.HintOf(err), c.hint) {
				t.Errorf("got %v (%s; hint: %s)", err, carrel.KindOf(err), carrel.HintOf(err))
			}
		})
	}
}

// TestWarnings shows the advice that a build prints.
func TestWarnings(t *testing.T) {
	f, err := dockerfile.Parse(
		"FROM debian AS Big\nMAINTAINER x\nRUN echo \\\n\n a\nCOPY $NOPE/a /b\nCMD serve\n")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, w := range f.Warnings() {
		all = append(all, w.String())
	}
	_, err = f.Plan(t.Context(), dockerfile.Options{Args: map[string]string{"UNUSED": "1",
		"HTTP_PROXY": "x"},
		Warn: func(w dockerfile.Warning) { all = append(all, w.String()) }}, resolve)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(all, "\n")
	for _, want := range []string{"line 1: ", "line 2: ", "line 6: no variable NOPE",
		"no ARG UNUSED"} {
		if !strings.Contains(text, want) {
			t.Errorf("no warning %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "HTTP_PROXY") {
		t.Errorf("a proxy needs no ARG:\n%s", text)
	}
}

// TestUsesContext shows which files need a context.
func TestUsesContext(t *testing.T) {
	for text, want := range map[string]bool{
		"RUN x":                               false,
		"RUN --mount=type=cache,target=/x y":  false,
		"RUN --mount=type=secret,id=x y":      false,
		"RUN --mount=target=/x y":             true,
		"RUN --mount=target=/x,from=other y":  false,
		"RUN --mount=type=$T,target=/x y":     true,
		"COPY a b":                            true,
		"COPY --from=other a b":               false,
		"COPY <<E b\nx\nE":                    false,
		"ADD https://example.com/a b":         true,
		"ONBUILD COPY a b":                    true,
		"FROM other\nRUN x\nFROM x\nCOPY a b": true,
	} {
		f, err := dockerfile.Parse("FROM debian\n" + text + "\n")
		if err != nil {
			t.Fatal(err)
		}
		if got := f.UsesContext(); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
