package frameworks

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// jsFramework is a framework with the page docs/with/NAME.md, whose packages js/package.json pins.
type jsFramework struct {
	name   string
	script []turn // the model's answers to the program of the page
	want   string // must be in the program's output, as a regular expression
	tests  []turn // the same for js/NAME.test.mjs
}

// asksShell is a model that uses a tool for that command, and tells the result.
func asksShell(tool string) []turn {
	return []turn{{Tool: tool, Args: map[string]any{"command": inside}}, {Say: "It says: RESULT"}}
}

// jsFrameworks are the frameworks in JavaScript.
var jsFrameworks = []jsFramework{
	{"computesdk", nil, proof, nil},
	{"mastra", asksShell("mastra_workspace_execute_command"), proof, asksShell("mastra_workspace_execute_command")},
	{"ai-sdk", []turn{
		{Tool: "runPython", Args: map[string]any{"code": "import subprocess\nprint(subprocess.getoutput('" + inside + "'))"}},
		{Say: "It says: RESULT"},
	}, proof, asksShell("shell")},
}

// TestJavaScript runs the program of each page, and then the framework's own tests.
func TestJavaScript(t *testing.T) {
	s := newStage(t)
	js := installJS(t, s)
	for _, f := range jsFrameworks {
		t.Run(f.name, func(t *testing.T) {
			js.checkInstalls(t, f.name)
			m := serveModel(t, f.script...)
			out := js.program(t, f.name, js.environment(s, m))
			if !regexp.MustCompile(f.want).MatchString(out) {
				t.Errorf("the program of docs/with/%s.md prints\n%s\nwant %s\nthe model saw %+v", f.name, out, f.want, m.requests())
			}
			if len(f.script) > 0 {
				m.check(t)
			}
			if left := s.made(t); left != "[]" {
				t.Errorf("the program left sandboxes: %s", left)
			}
			m = serveModel(t, f.tests...)
			t.Log(js.tests(t, f.name, js.environment(s, m)))
			if left := s.made(t); left != "[]" {
				t.Errorf("the tests left sandboxes: %s", left)
			}
		})
	}
}

// jsInstall is a directory with the packages of js/package.json.
type jsInstall struct{ dir, node string }

// installJS installs the packages, with a Node that the frameworks want, and copies the tests
// beside them.
func installJS(t *testing.T, s *stage) *jsInstall {
	t.Helper()
	_, err := exec.LookPath("npm")
	testenv.Need(t, "node", err)
	js := &jsInstall{dir: filepath.Join(s.cache, "js")}
	if err := os.MkdirAll(js.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	copyJS := func(name string) (changed bool) {
		fresh, err := os.ReadFile(filepath.Join("js", name))
		if err != nil {
			t.Fatal(err)
		}
		old, _ := os.ReadFile(filepath.Join(js.dir, name)) // perhaps there is none yet
		if err := os.WriteFile(filepath.Join(js.dir, name), fresh, 0o644); err != nil {
			t.Fatal(err)
		}
		return string(old) != string(fresh)
	}
	tests, err := filepath.Glob("js/*.mjs")
	if err != nil || len(tests) == 0 {
		t.Fatalf("there are no tests in js: %v", err)
	}
	for _, test := range tests {
		copyJS(filepath.Base(test))
	}
	changed := copyJS("package.json")
	changed = copyJS("package-lock.json") || changed
	done := filepath.Join(js.dir, "installed")
	if _, err := os.Stat(done); err != nil || changed {
		_ = os.Remove(done)
		run(t, js.dir, os.Environ(), "npm", "ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts")
		if err := os.WriteFile(done, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	js.node = filepath.Join(js.dir, "node_modules/node-linux-"+arch+"/bin/node")
	return js
}

// environment returns the stage's environment, with the form of the model's address that the
// packages of AI SDK want.
func (js *jsInstall) environment(s *stage, m *model) []string {
	return append(s.environment(m), "ANTHROPIC_BASE_URL="+m.URL+"/v1", "MASTRA_TELEMETRY_DISABLED=1")
}

// program runs the program of a page, and returns its output.
func (js *jsInstall) program(t *testing.T, name string, env []string) string {
	t.Helper()
	file := filepath.Join(js.dir, "page-"+name+".mjs") // so that it finds the packages
	if err := os.WriteFile(file, []byte(blockOf(t, name, "js")), 0o644); err != nil {
		t.Fatal(err)
	}
	return run(t, js.dir, env, js.node, file)
}

// tests runs the tests of a framework, and returns their last lines. A run without a test fails.
func (js *jsInstall) tests(t *testing.T, name string, env []string) string {
	t.Helper()
	out := run(t, js.dir, env, js.node, "--test", "--test-reporter=tap", "--test-timeout=240000", name+".test.mjs")
	passed := regexp.MustCompile(`(?m)^# pass [1-9]\d*$`).FindString(out)
	if passed == "" {
		t.Errorf("no test ran:\n%s", out)
	}
	return passed
}

// checkInstalls checks that a page names packages that js/package.json pins, and no others.
func (js *jsInstall) checkInstalls(t *testing.T, name string) {
	t.Helper()
	pinned := dependencies(t, "js/package.json")
	words := strings.Fields(blockOf(t, name, "sh"))
	if len(words) < 3 || words[0] != "npm" || words[1] != "install" {
		t.Fatalf("docs/with/%s.md: the shell block is not an npm install: %q", name, words)
	}
	for _, p := range words[2:] {
		if pinned[p] == "" {
			t.Errorf("docs/with/%s.md installs %s, which js/package.json does not pin", name, p)
		}
	}
}

// dependencies reads the versions in a package.json.
func dependencies(t *testing.T, file string) map[string]string {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out struct{ Dependencies map[string]string }
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out.Dependencies
}
