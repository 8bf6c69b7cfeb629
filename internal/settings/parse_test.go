package settings_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/settings"
)

// everything is a file with every key.
const everything = `
profiles: [node, git]
tier: gvisor
read: {allow: [~/x], deny: ["*.pem", /srv], default: allow}
write: {allow: [out], deny: [src/gen], default: deny, protect: [lock], unprotect: [.vscode]}
network:
  allow: [example.com, "*.example.org", "10.0.0.0/8", "tcp://db.example.com:5432"]
  deny: [evil.example.com]
  policy: {rules: [{allow: [api.example.com], methods: [GET]}]}
  sockets: [/run/x.sock]
  bind: false
  publish: ["8080", "127.0.0.1:9000:80", 0:80]
  host: false
env: {pass: [MY_TOKEN, "FOO_*"], strip: [BAR], set: {A: b, N: 1}, clear: false}
limits: {cpus: 1.5, memory: 512M, pids: 100, file: 2GiB, tmp: none, openFiles: 64, timeout: 1h30m}
overlay: true
terminal: none
walls: light
`

func TestParse(t *testing.T) {
	s, err := settings.Parse("x.yaml", []byte(everything))
	if err != nil {
		t.Fatal(err)
	}
	cpus, mb, pids, file, tmp, open, timeout, yes, no := 1.5, 512, 100, 2048, 0, 64, 90*time.Minute, true, false
	want := settings.Settings{
		Profiles: []string{"node", "git"}, Tier: "gvisor",
		Read:  settings.PathRules{Allow: []string{"~/x"}, Deny: []string{"*.pem", "/srv"}, Default: "allow"},
		Write: settings.PathRules{Allow: []string{"out"}, Deny: []string{"src/gen"}, Default: "deny", Protect: []string{"lock"}, Unprotect: []string{".vscode"}},
		Network: settings.NetworkRules{Allow: []string{"example.com", "*.example.org", "10.0.0.0/8", "tcp://db.example.com:5432"}, Deny: []string{"evil.example.com"},
			Policy: &carrel.Policy{Rules: []carrel.Rule{{Allow: []string{"api.example.com"}, Methods: []string{"GET"}}}}, Sockets: []string{"/run/x.sock"}, Bind: &no, Publish: []string{"8080", "127.0.0.1:9000:80", "0:80"}},
		Env:     settings.EnvRules{Pass: []string{"MY_TOKEN", "FOO_*"}, Strip: []string{"BAR"}, Set: map[string]string{"A": "b", "N": "1"}},
		Limits:  settings.Limits{CPUs: &cpus, MemoryMB: &mb, Pids: &pids, FileMB: &file, TmpMB: &tmp, OpenFiles: &open, Timeout: &timeout},
		Overlay: &yes, Terminal: "none", Walls: "light",
	}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("got  %+v\nwant %+v", s, want)
	}
	// The same as JSON.
	j, err := settings.Parse("x.json", []byte(`{"read": {"deny": []}, "network": {"allow": []}, "limits": {"memory": "1G"}}`))
	if err != nil || j.Read.Deny == nil || j.Read.Allow != nil || j.Network.Allow == nil || *j.Limits.MemoryMB != 1024 {
		t.Errorf("%+v, %v", j, err)
	}
}

// TestBadFiles checks which files are refused, and the error texts.
func TestBadFiles(t *testing.T) {
	var bomb strings.Builder
	bomb.WriteString("a: &a [x,x,x,x,x,x,x,x,x]\n")
	for c := 'b'; c < 'l'; c++ {
		bomb.WriteString(strings.NewReplacer("B", string(c), "A", string(c-1)).Replace("B: &B [*A,*A,*A,*A,*A,*A,*A,*A,*A]\n"))
	}
	bomb.WriteString("read: {allow: *k}\n")

	for name, c := range map[string]struct{ text, want string }{
		"empty":            {"", "the file is empty"},
		"blank":            {" \n\n", "the file is empty"},
		"comment":          {"# nothing\n", "empty"},
		"binary":           {"read: {}\x00\x01", "the file is binary"},
		"not UTF-8":        {"read: {allow: [\"\xff\xfe\"]}", "not UTF-8"},
		"too large":        {strings.Repeat("#", settings.MaxFile+1), "larger than"},
		"unknown":          {"reed: {}", "did you mean read?"},
		"unknown inside":   {"network: {alow: []}", "did you mean allow?"},
		"elsewhere":        {"denyRead: []", "did you mean read.deny?"},
		"another tool's":   {"filesystem: {}", "srt file"},
		"twice":            {"tier: ns\ntier: sim", "twice"},
		"two documents":    {"tier: ns\n---\ntier: sim", "second document"},
		"syntax":           {"read: [", ": x.yaml"},
		"a list":           {"[]", "a mapping needed"},
		"not a list":       {"read: {allow: /tmp}", "write [/tmp]"},
		"not text":         {"read: {allow: [true]}", "text needed"},
		"empty path":       {"read: {allow: [\"\"]}", "an empty text"},
		"null":             {"read: {allow: [~]}", "nothing given"},
		"word":             {"tier: nss", "did you mean ns?"},
		"truth":            {"overlay: 1", "true or false"},
		"size":             {"limits: {memory: 512}", "write 512M"},
		"negative":         {"limits: {pids: -1}", "no whole number"},
		"zero":             {"limits: {pids: 0}", "no whole number"},
		"huge size":        {"limits: {memory: 9e99G}", "more than 1024 TiB"},
		"nan":              {"limits: {cpus: .nan}", "no such number"},
		"duration":         {"limits: {timeout: 5}", "no duration"},
		"protocol":         {"network: {allow: [\"gopher://example.com\"]}", "gopher"},
		"no destination":   {"network: {allow: [\"tcp://\"]}", "names no destination"},
		"wildcard":         {"network: {allow: [\"a.*.com\"]}", "network.allow[0]"},
		"allowed, denied":  {"network: {allow: [a.example.com], deny: [a.example.com]}", "network.allow[0]"},
		"bad policy":       {"network: {policy: {rulez: []}}", "rulez"},
		"policy rule":      {"network: {policy: {rules: [{allow: [x], deny: [y]}]}}", "network.policy"},
		"port":             {"network: {publish: [\"99999\"]}", "no port"},
		"port address":     {"network: {publish: [\"1.2.3:80\"]}", "no address"},
		"variable":         {"env: {pass: [\"A=b\"]}", "no name of a variable"},
		"passed, stripped": {"env: {pass: [A], strip: [A]}", "env.pass too"},
		"protect":          {"write: {protect: [\"**/x\"]}", "neither ** nor"},
		"protect all":      {"write: {protect: [\".\"]}", "no name"},
		"bomb":             {bomb.String(), "line"},
		"alias bomb":       {"x: &x [a]\nread: {allow: [" + strings.Repeat("*x,", 10) + "]}", "line"},
		"self":             {"read: &a {allow: *a}", "line"},
		"merge":            {"read: {<<: {allow: [x]}}", "no text"},
		"many values":      {"env: {pass: &p [" + strings.Repeat("A,", 60_000) + "], strip: *p}", "more than 100000 values"},
		"deep":             {strings.Repeat("[", 20_000), ""},
		"control":          {"\"a\\x1b[31m\": 1", `\x1b`},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := settings.Parse("x.yaml", []byte(c.text))
			var e *carrel.Error
			if err == nil || !errors.As(err, &e) || e.Kind != carrel.Invalid || !strings.HasPrefix(e.Field, "x.yaml") {
				t.Fatalf("%+v, %v", s, err)
			}
			if text := err.Error() + " / " + e.Hint; !strings.Contains(text, c.want) || strings.ContainsAny(text, "\x1b\x00") {
				t.Errorf("%q has no %q", text, c.want)
			}
		})
	}
}

// TestBadPlaces checks settings files that are pipes, directories and the like.
func TestBadPlaces(t *testing.T) {
	p := newPlace(t)
	given := func(name string) func(*settings.Request) {
		return func(r *settings.Request) { r.File = name }
	}
	if text := p.fails(given("/nowhere/x.yaml")); !strings.Contains(text, "/nowhere/x.yaml") {
		t.Error(text)
	}
	if text := p.fails(given(p.home)); !strings.Contains(text, "no regular file") {
		t.Error(text)
	}
	pipe := filepath.Join(p.home, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if text := p.fails(given(pipe)); !strings.Contains(text, "no regular file") {
		t.Error(text)
	}
	big := p.file("big.yaml", "")
	if err := os.Truncate(big, 100<<20); err != nil {
		t.Fatal(err)
	}
	if text := p.fails(given(big)); !strings.Contains(text, "larger than") {
		t.Error(text)
	}
	// A bad project's file stops the run, because nobody can tell what it would have closed.
	p.file("project/.carrel.yaml", "reed: {}")
	if text := p.fails(); !strings.Contains(text, ".carrel.yaml") {
		t.Error(text)
	}
	// A link to a settings file is followed.
	q := newPlace(t)
	q.file("dotfiles/run.yaml", "limits: {pids: 7}")
	q.link(q.home+"/dotfiles/run.yaml", ".config/carrel/run.yaml")
	if b := q.resolve(); b.Pids != 7 {
		t.Error(b.Pids)
	}
}

// TestPaths checks paths as people and hostile repositories write them.
func TestPaths(t *testing.T) {
	p := newPlace(t)
	odd := "a\nb\xff\x1b[31m"
	p.file("project/"+odd+"/x", "x")
	p.file("project/[id]/page", "x")
	p.file("project/src/a/b/c.key", "x")
	p.file("project/src/d.key", "x")
	read := func(deny ...string) func(*settings.Request) {
		return flags(settings.Settings{Read: settings.PathRules{Deny: deny}})
	}
	b := p.resolve(read(odd, "[id]/page", "src/**/*.key"))
	p.want(b, map[string]settings.Access{"project/" + odd + "/x": denied, "project/[id]/page": denied, "project/i/page": writable, "project/src/a/b/c.key": denied, "project/src/d.key": denied})
	if text := strings.Join(b.Explain(true), ""); strings.ContainsAny(text, "\n\x1b") || !utf8.ValidString(text) {
		t.Errorf("%q", text)
	}
	p.want(p.resolve(read("*.key")), map[string]settings.Access{"project/src/a/b/c.key": denied, "project/src/d.key": denied})
	p.want(p.resolve(read("src/*.key", "./src/a/")), map[string]settings.Access{"project/src/a/b/c.key": denied, "project/src/d.key": denied})
	noted(t, p.resolve(read("*.nothing")), "matches nothing")
	noted(t, p.resolve(read("src/*.nothing")), "matches nothing")
	noted(t, p.resolve(read("missing")), "matches nothing")
	for bad, want := range map[string]string{"": "empty path", "a\x00b": "NUL", "~root/x": "in full", "[": "no pattern", "a**/b*": "whole directories", "src/[a": "no pattern"} {
		if text := p.fails(read(bad)); !strings.Contains(text, want) || !strings.Contains(text, "--no-read") {
			t.Errorf("%q: %s", bad, text)
		}
	}
	if text := p.fails(flags(settings.Settings{Write: settings.PathRules{Allow: []string{"missing"}}})); !strings.Contains(text, "does not exist") {
		t.Error(text)
	}
	text := p.fails(flags(settings.Settings{Read: settings.PathRules{Deny: []string{"./src"}}, Write: settings.PathRules{Allow: []string{"~/project/src/"}}}))
	if !strings.Contains(text, "--no-read") || !strings.Contains(text, "--write") {
		t.Error(text)
	}
	// A path that is closed for writing can't be created either.
	b = p.resolve(flags(settings.Settings{Write: settings.PathRules{Deny: []string{"later/x", "*.lock"}}}))
	p.want(b, map[string]settings.Access{"project/later/x/y": readable, "project/later/y": writable, "project/a/b.lock": readable})
}

// TestSchema shows that the schema and the parser agree.
func TestSchema(t *testing.T) {
	c := jsonschema.NewCompiler()
	if err := c.AddResource("run.json", bytes.NewReader(settings.Schema())); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("run.json")
	if err != nil {
		t.Fatal(err)
	}
	for text, good := range map[string]bool{
		`{}`: true, `{"read": {"allow": ["/x"], "deny": []}}`: true, `{"reed": {}}`: false, `{"read": {"protect": ["x"]}}`: false, `{"tier": "x"}`: false, `{"limits": {"memory": "1G", "pids": 4, "cpus": 2}}`: true, `{"limits": {"memory": 5}}`: false, `{"limits": {"memory": "x"}}`: false,
		`{"network": {"policy": "github", "bind": true}}`: true, `{"network": {"policy": {"default": "allow"}}}`: true, `{"network": {"policy": 3.5}}`: false, `{"env": {"set": {"A": "b"}}}`: true, `{"overlay": "yes"}`: false, `{"limits": {"pids": 0}}`: false, `{"read": {"allow": [""]}}`: false, `{"write": {"default": "maybe"}}`: false,
	} {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		byParser, _ := settings.Parse("x.json", []byte(text))
		_, err := settings.Parse("x.json", []byte(text))
		if says := schema.Validate(v) == nil; says != good || (err == nil) != good {
			t.Errorf("%s: schema %t, parser %v (%+v), want %t", text, says, err, byParser, good)
		}
	}
}

// TestSchemaNamesEveryKey compares the keys of the schema with those of the parser. The parser
// lists its keys in the error for an unknown one.
func TestSchemaNamesEveryKey(t *testing.T) {
	type node struct {
		Properties map[string]*node
	}
	var root node
	if err := json.Unmarshal(settings.Schema(), &root); err != nil {
		t.Fatal(err)
	}
	var walk func(n *node, open, shut string)
	walk = func(n *node, open, shut string) {
		_, err := settings.Parse("x", []byte(open+`{"qqqqqqqqqqqqqqq": 1}`+shut))
		var e *carrel.Error
		if !errors.As(err, &e) {
			t.Fatal(err)
		}
		known := strings.Split(strings.TrimPrefix(e.Hint, "the keys here are "), ", ")
		var said []string
		for k, sub := range n.Properties {
			said = append(said, k)
			if len(sub.Properties) > 0 {
				walk(sub, open+`{"`+k+`":`, "}"+shut)
			}
		}
		slices.Sort(said)
		if !slices.Equal(said, known) {
			t.Errorf("at %s: the schema has %q, the parser %q", open, said, known)
		}
	}
	walk(&root, "", "")
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(everything))
	f.Add([]byte(`{"network": {"allow": ["[::1]:80"]}, "limits": {"timeout": "1s"}}`))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := settings.Parse("x", data)
		var e *carrel.Error
		if err != nil && (!errors.As(err, &e) || e.Kind != carrel.Invalid || e.Field == "") {
			t.Fatalf("%#v", err)
		}
		if err != nil && strings.ContainsAny(e.Field, "\x00\x1b\n") {
			t.Fatalf("%q", err)
		}
		if err == nil {
			r := settings.Request{Dir: "/w", Home: "/h", NoFiles: true, Flags: s, Exists: func(string) bool { return true }}
			if b, err := settings.Resolve(r); err == nil {
				b.Explain(true)
			}
		}
	})
}
