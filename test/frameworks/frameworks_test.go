// Package frameworks drives the frameworks that agents are made with, unmodified and from the
// registries, against a real daemon (bin/carrel). Each one works through its own support for E2B.
// Its model is fake and follows a script; its sandboxes are real.
//
// Each framework has a page docs/with/NAME.md. The test runs the program on that page as it stands.
package frameworks

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/aptmirror"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// programTime bounds one program. Some make a template of several hundred megabytes.
const programTime = 10 * time.Minute

// stage is what the frameworks of one language share: a daemon, and a directory that is kept.
type stage struct {
	daemon *daemontest.Daemon
	cache  string // absolute; installed packages stay there for the next time
}

// keptDir returns the directory of what is installed, CARREL_FRAMEWORKS. The tests take minutes and
// install much, so only "make frameworks" runs them: it sets the variable.
func keptDir(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("CARREL_FRAMEWORKS")
	if dir == "" {
		testenv.Need(t, "frameworks", errors.New("it installs many packages: run it with make frameworks"))
		dir = t.TempDir()
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// newStage starts a daemon that has the template code-interpreter-v1.
func newStage(t *testing.T) *stage {
	t.Helper()
	dir := keptDir(t)
	// The template is the one that "make kernels" makes, so that it is made once.
	cache := filepath.Join(filepath.Dir(dir), "kernels", "cache")
	args := []string{"--cache-dir", cache}
	made, err := filepath.Glob(filepath.Join(cache, "template-code-interpreter-v1-*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(made) == 0 {
		args = append(args, "--debian-mirror", aptmirror.Serve(t, "code-interpreter-v1"))
	}
	s := &stage{daemon: daemontest.Start(t, args...), cache: dir}
	if out, err := s.daemon.CLI("template", "get", "code-interpreter-v1").CombinedOutput(); err != nil {
		t.Fatalf("code-interpreter-v1: %v\n%s", err, out)
	}
	return s
}

// environment returns this environment, with the variables that E2B's clients and the model's
// clients read, and without others that would influence them.
func (s *stage) environment(m *model) []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if !regexp.MustCompile(`^(E2B|CARREL|OPENAI|ANTHROPIC|CLAUDE|VIRTUAL_ENV|PYTHON)`).MatchString(name) {
			env = append(env, kv)
		}
	}
	return append(env, "E2B_API_URL="+s.daemon.URL, "E2B_SANDBOX_URL="+s.daemon.URL, "E2B_API_KEY="+s.daemon.Key,
		"OPENAI_BASE_URL="+m.URL+"/v1", "OPENAI_API_KEY="+modelKey,
		"ANTHROPIC_BASE_URL="+m.URL, "ANTHROPIC_API_KEY="+modelKey,
		// Nothing is outside of this machine: reports of use would be tried for minutes.
		"OTEL_SDK_DISABLED=true", "CREWAI_DISABLE_TELEMETRY=true", "CREWAI_TRACING_ENABLED=false", "AGNO_TELEMETRY=false",
		"LITELLM_LOCAL_MODEL_COST_MAP=True", "DO_NOT_TRACK=1")
}

// fenced finds the blocks of a page.
var fenced = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// blockOf returns the only block of docs/with/NAME.md in a language.
func blockOf(t *testing.T, name, language string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("../../docs/with", name+".md"))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range fenced.FindAllStringSubmatch(string(raw), -1) {
		if m[1] == language {
			found = append(found, m[2])
		}
	}
	if len(found) != 1 {
		t.Fatalf("docs/with/%s.md has %d blocks in %s", name, len(found), language)
	}
	return found[0]
}

// run runs a program in dir and returns its output.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), programTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, env, 10*time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, strings.Join(lines[max(0, len(lines)-60):], "\n"))
	}
	return string(out)
}

// made returns the IDs of the sandboxes that live now.
func (s *stage) made(t *testing.T) string {
	t.Helper()
	out, err := s.daemon.CLI("list", "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
