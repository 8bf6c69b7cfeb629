package cli

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// builder is a service that notes what it is asked to build, and whose build ends as the test says.
type builder struct {
	*fake
	carrel.NoRegistries
	spec    carrel.BuildSpec
	files   []string // of the context
	refusal error    // of StartBuild
	logs    []carrel.BuildLog
	hang    func() // called after the log; the log then waits for the caller's end
	end     carrel.Build
	ended   []string // builds that were cancelled
}

func (b *builder) StartBuild(_ context.Context, spec carrel.BuildSpec) (carrel.Build, error) {
	b.spec = spec
	if spec.Context != nil {
		for r := tar.NewReader(spec.Context); ; {
			h, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				return carrel.Build{}, err
			}
			b.files = append(b.files, h.Name)
		}
	}
	b.spec.Context = nil
	return carrel.Build{ID: "b1", State: carrel.BuildWaiting}, b.refusal
}

func (b *builder) BuildLogs(ctx context.Context, _ string,
	_ carrel.BuildLogOptions) iter.Seq2[carrel.BuildLog, error] {
	return func(yield func(carrel.BuildLog, error) bool) {
		for _, l := range b.logs {
			if !yield(l, nil) {
				return
			}
		}
		if b.hang != nil {
			b.hang()
			<-ctx.Done()
		}
	}
}

func (b *builder) GetBuild(context.Context, string) (carrel.Build, error) { return b.end, nil }

func (b *builder) ListBuilds(context.Context, carrel.BuildListOptions) ([]carrel.Build, error) {
	return []carrel.Build{b.end}, nil
}

func (b *builder) CancelBuild(ctx context.Context, id string) (carrel.Build, error) {
	b.ended = append(b.ended, id)
	return carrel.Build{ID: id, State: carrel.BuildCancelled}, ctx.Err()
}

func (b *builder) GetTemplate(context.Context, string) (carrel.Template, error) {
	return carrel.Template{ID: "img", Digest: "sha256:abc"}, nil
}

// build runs a command against a builder.
func (b *builder) build(ctx context.Context, t *testing.T, args ...string) outcome {
	t.Helper()
	if b.fake == nil {
		b.fake = &fake{}
	}
	in, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var out, errw bytes.Buffer
	a := &app{in: in, out: &out, err: &errw, now: func() time.Time { return noon },
		open: func(context.Context) (carrel.Service, error) { return b, nil }}
	code := a.main(ctx, args)
	return outcome{out: out.String(), err: errw.String(), code: code}
}

var ready = carrel.Build{ID: "b1", Name: "web", TemplateID: "t1", Image: "img",
	State: carrel.BuildReady, Created: noon.Add(-time.Minute),
	Started: noon.Add(-time.Minute), Ended: noon, Steps: []carrel.BuildStep{
		{Text: "COPY a /", Line: 2, State: carrel.BuildReady, Cached: true},
		{Text: "RUN make", Line: 3, Stage: "final", State: carrel.BuildReady, Took: time.Second}}}

// project makes a directory with a Dockerfile and some files.
func project(t *testing.T, dockerfile string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"Dockerfile": dockerfile, "a": "1",
		"secret.txt": "hidden", ".dockerignore": "secret.txt\n.dockerignore\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestTemplateBuild shows the specification that the flags make, and the result.
func TestTemplateBuild(t *testing.T) {
	dir := project(t, "FROM debian\nARG A\nCOPY a /\nRUN make\n")
	t.Setenv("FROM_ENV", "value of the environment")
	b := &builder{end: ready, logs: []carrel.BuildLog{
		{Level: "info", Source: "build", Step: "1", Message: "CACHED COPY a /"},
		{Level: "info", Source: "stdout", Message: "made\x1b[2J it\n"}}}
	got := b.build(t.Context(), t, "template", "build", "web:v1", dir, "--build-arg", "A=1=2",
		"--build-arg", "FROM_ENV", "--build-arg", "NOT_THERE_AT_ALL",
		"--target", "x", "--secret", "id=tok,src="+filepath.Join(dir, "secret.txt"), "--secret",
		"id=FROM_ENV", "--secret", "id=e,env=FROM_ENV", "--no-cache",
		"--tag", "v2", "--cpus", "2", "--memory", "1G", "--disk", "2G", "--min-free-disk", "512M",
		"--start", "serve", "--ready", "check", "--timeout", "1h",
		"--step-timeout", "5m", "--tier", "ns", "--allow", "registry.example.com")
	if got.code != 0 || got.out != "t1 sha256:abc\n" {
		t.Fatalf("%+v", got)
	}
	for _, want := range []string{"[1/2] CACHED COPY a /\n", "    made?[2J it\n",
		"2 steps, 1 of them from the cache"} {
		if !strings.Contains(got.err, want) {
			t.Errorf("no %q in\n%s", want, got.err)
		}
	}
	if fmt.Sprint(b.files) != "[Dockerfile a]" {
		t.Errorf("the context has %v", b.files)
	}
	if n := b.spec.Network; n == nil || n.Policy == nil || len(n.Policy.Rules) != 1 ||
		n.Policy.Rules[0].Allow[0] != "registry.example.com" {
		t.Errorf("the network is %+v", n)
	}
	b.spec.Network = nil
	want := carrel.BuildSpec{Name: "web", Tags: []string{"v1", "v2"}, CPUs: 2, MemoryMB: 1024,
		DiskMB: 2048, MinFreeDiskMB: 512, Tier: carrel.NS, NoCache: true,
		Timeout: time.Hour, StepTimeout: 5 * time.Minute,
		Dockerfile: "FROM debian\nARG A\nCOPY a /\nRUN make\n", Target: "x", Start: "serve",
		Ready: "check",
		Args:  map[string]string{"A": "1=2", "FROM_ENV": "value of the environment"},
		Secrets: map[string]string{"tok": "hidden", "FROM_ENV": "value of the environment",
			"e": "value of the environment"}}
	if !reflect.DeepEqual(b.spec, want) {
		t.Errorf("got  %+v\nwant %+v", b.spec, want)
	}
}

// TestTemplateBuildForms shows the other forms of the result, and that a build without COPY sends
// no directory.
func TestTemplateBuildForms(t *testing.T) {
	dir := project(t, "FROM debian AS Upper\nRUN make\n")
	b := &builder{end: ready, logs: []carrel.BuildLog{{Level: "info", Message: "a line"}}}
	if got := b.build(t.Context(), t, "template", "build", "web", "-q", "-f",
		filepath.Join(dir, "Dockerfile")); got.out != "t1\n" || got.err != "" || got.code != 0 {
		t.Errorf("-q: %+v", got)
	}
	if len(b.files) != 0 {
		t.Errorf("sent %v", b.files)
	}
	if got := b.build(t.Context(), t, "template", "build", "web", "-f",
		filepath.Join(dir, "Dockerfile"), "--json"); !strings.HasPrefix(got.out, `{"build":{"id":"b1"`) ||
		!strings.Contains(got.out, `"digest":"sha256:abc"`) ||
		!strings.Contains(got.err, "warning: line 1") {
		t.Errorf("--json: %+v", got)
	}
	if got := b.build(t.Context(), t, "build", "ls"); !strings.Contains(got.out,
		"b1   web        ready   1m0s   1m0s   2") {
		t.Errorf("build ls: %+v", got)
	}
	if got := b.build(t.Context(), t, "build", "show", "b1"); !strings.Contains(got.out,
		"1   2      cached   0s     COPY a /") || !strings.Contains(got.out, "[final] RUN make") {
		t.Errorf("build show: %+v", got)
	}
	if got := b.build(t.Context(), t, "build", "logs", "b1"); got.out != "a line\n" {
		t.Errorf("build logs: %+v", got)
	}
}

// TestTemplateBuildFailure shows how a failed build names its line, and the exit statuses.
func TestTemplateBuildFailure(t *testing.T) {
	dir := project(t, "FROM debian\n\nRUN make\nRUN last\n")
	b := &builder{end: carrel.Build{ID: "b1", State: carrel.BuildError,
		Reason: &carrel.BuildReason{Message: "RUN make: exit status 2", Line: 3, Step: "1",
			Hint: "install make"}},
		logs: []carrel.BuildLog{{Source: "stderr", Message: "make: no targets"}}}
	for _, flags := range [][]string{nil, {"-q"}} {
		got := b.build(t.Context(), t, append([]string{"template", "build", "web", dir}, flags...)...)
		for _, want := range []string{"make: no targets", ">    3 | RUN make\n",
			"carrel: build template: line 3: RUN make: exit status 2\n", "hint: install make\n"} {
			if !strings.Contains(got.err, want) {
				t.Errorf("%v: no %q in\n%s", flags, want, got.err)
			}
		}
		if got.code != 1 || got.out != "" {
			t.Errorf("%v: %+v", flags, got)
		}
	}
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"a missing file": {[]string{"template", "build", "web", t.TempDir()}, 2,
			"hint: name the Dockerfile with -f"},
		"a wrong Dockerfile": {[]string{"template", "build", "web", project(t, "FROM debian\nFOO\n")},
			2, ">    2 | FOO"},
		"a wrong argument": {[]string{"template", "build", "web", dir, "--build-arg", "=x"}, 2,
			"KEY=VALUE"},
		"a wrong secret": {[]string{"template", "build", "web", dir, "--secret", "src=x"}, 2,
			"id=NAME"},
		"another kind of secret": {[]string{"template", "build", "web", dir, "--secret", "id=x,foo=y"}, 2,
			`"foo=y" is not known`},
		"a missing secret": {[]string{"template", "build", "web", dir, "--secret",
			"id=NOT_THERE_AT_ALL"}, 2, "the environment has no NOT_THERE_AT_ALL"},
		"no directory": {[]string{"template", "build", "web", "https://example.com/x.git"}, 2,
			"a directory of this machine"},
	} {
		if got := b.build(t.Context(), t, c.args...); got.code != c.code ||
			!strings.Contains(got.err, c.want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	b.refusal = &carrel.Error{Op: "build template", Kind: carrel.Unsupported,
		Err: errors.New("line 4: RUN last can't be done")}
	if got := b.build(t.Context(), t, "template", "build", "web", dir); got.code != 8 ||
		!strings.Contains(got.err, ">    4 | RUN last") {
		t.Errorf("a refusal: %+v", got)
	}
}

// TestTemplateBuildInterrupted shows that an interrupted command cancels its build.
func TestTemplateBuildInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	b := &builder{end: ready, hang: interrupt}
	if got := b.build(ctx, t, "template", "build", "web",
		project(t, "FROM debian\n")); got.code != exitInterrupted || fmt.Sprint(b.ended) != "[b1]" ||
		got.out != "" {
		t.Errorf("%+v, cancelled %v", got, b.ended)
	}
}
