package frameworks

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// pythonFramework is a framework with the page docs/with/NAME.md and the packages of
// python/NAME/requirements.txt.
type pythonFramework struct {
	name   string
	script []turn // the model's answers to the program of the page
	want   string // must be in the program's output, as a regular expression
	python string // the least version of Python, if Debian's is too old
}

// inside is a command whose output only a sandbox of gVisor has.
const inside = "dmesg | head -1; echo $((6 * 7))"

// proof is what that command prints.
const proof = `(?s)Starting gVisor.*42`

// pythons are the frameworks in Python.
var pythons = []pythonFramework{
	{"smolagents", []turn{
		{Say: "Thought: the machine counts.\n<code>\nimport subprocess\nfinal_answer(subprocess.run(" +
			"\"" + inside + "\", shell=True, capture_output=True, text=True).stdout)\n</code>"},
	}, proof, ""},
	{"openai-agents", []turn{{Tool: "exec_command", Args: object{"cmd": inside}}, {Say: "It says RESULT"}}, proof, ""},
	{"deepagents", []turn{{Tool: "execute", Args: object{"command": inside}}, {Say: "It says RESULT"}}, proof, ""},
	{"crewai", []turn{
		{Tool: "e2b_sandbox_python", Args: object{"code": "6 * 7"}},
		{Tool: "e2b_sandbox_exec", Args: object{"command": inside}},
		{Say: "It says RESULT"},
	}, proof, ""},
	{"agno", []turn{
		{Tool: "run_python_code", Args: object{"code": "import subprocess\nx = 6\nsubprocess.getoutput('dmesg | head -1')"}},
		{Tool: "run_python_code", Args: object{"code": "x * 7"}},
		{Tool: "run_command", Args: object{"command": inside}},
		{Say: "It says RESULT"},
	}, proof, ""},
	{"inspect", []turn{{Tool: "bash", Args: object{"command": inside}}, {Say: "It says RESULT"}}, `(?s)1\.0 It says.*Starting gVisor.*42`, ""},
	// Its task's own judge looks for gVisor in the sandbox's kernel log.
	{"harbor", nil, `│\s+1 │\s+0 │ 1\.000 │`, "3.12"},
	{"claude-agent-sdk-python", []turn{
		{Tool: "mcp__computer__bash", Args: object{"command": inside}},
		{Say: "It says RESULT"},
	}, proof, ""},
}

// TestPython runs the program of each page, and then the framework's own tests, if there is a
// directory of them beside its requirements.
func TestPython(t *testing.T) {
	s := newStage(t)
	uv := installUV(t, s.cache)
	for _, f := range pythons {
		t.Run(f.name, func(t *testing.T) {
			python := installPython(t, s, uv, f.name, f.python)
			m := serveModel(t, f.script...)
			env := append(s.environment(m), "PATH="+filepath.Dir(python)+":"+os.Getenv("PATH"))
			dir := t.TempDir()
			program := filepath.Join(dir, "agent.py")
			if err := os.WriteFile(program, []byte(blockOf(t, f.name, "python")), 0o600); err != nil {
				t.Fatal(err)
			}
			out := run(t, dir, env, python, program)
			if !regexp.MustCompile(f.want).MatchString(out) {
				t.Errorf("the program of docs/with/%s.md prints\n%s\nwant %s\nthe model saw %+v", f.name, out, f.want, m.requests())
			}
			m.check(t)
			if left := s.made(t); left != "[]" {
				t.Errorf("the program left sandboxes: %s", left)
			}
			tests, err := filepath.Abs(filepath.Join("python", f.name))
			if err != nil {
				t.Fatal(err)
			}
			if found, _ := filepath.Glob(filepath.Join(tests, "test_*.py")); len(found) > 0 {
				out := run(t, tests, append(env, "PYTHONDONTWRITEBYTECODE=1"), python, "-m", "pytest", "-q", "-p", "no:cacheprovider")
				lines := strings.Split(strings.TrimSpace(out), "\n")
				t.Log(lines[len(lines)-1])
			}
		})
	}
}

// installUV installs uv, which installs the others: they come to gigabytes, and it links files that
// they share.
func installUV(t *testing.T, cache string) string {
	t.Helper()
	_, err := exec.LookPath("python3")
	testenv.Need(t, "python", err)
	dir := filepath.Join(cache, "uv")
	if _, err := os.Stat(filepath.Join(dir, "bin/pip")); err != nil {
		run(t, "", os.Environ(), "python3", "-m", "venv", dir)
	}
	requirements, err := filepath.Abs("python/uv.txt")
	if err != nil {
		t.Fatal(err)
	}
	run(t, "", os.Environ(), filepath.Join(dir, "bin/pip"), "install", "--quiet", "-r", requirements)
	return filepath.Join(dir, "bin/uv")
}

// findPython tells uv which Python to take: one that pyenv has, or by its version. uv looks for the
// version on this machine, and else fetches it.
func findPython(version string) string {
	root := cmp.Or(os.Getenv("PYENV_ROOT"), filepath.Join(os.Getenv("HOME"), ".pyenv"))
	found, _ := filepath.Glob(filepath.Join(root, "versions", version+".*", "bin", "python3"))
	if len(found) > 0 {
		return found[len(found)-1]
	}
	return version
}

// installPython makes an environment with the packages of a framework, and returns its Python. The
// page must name packages that are installed, and no others.
func installPython(t *testing.T, s *stage, uv, name, version string) string {
	t.Helper()
	dir := filepath.Join(s.cache, name)
	file, err := filepath.Abs(filepath.Join("python", name, "requirements.txt"))
	if err != nil {
		t.Fatal(err)
	}
	pinned, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "UV_CACHE_DIR="+filepath.Join(s.cache, "wheels"))
	python := filepath.Join(dir, "bin/python")
	if _, err := os.Stat(python); err != nil {
		args := []string{"venv", "--quiet", "--clear", dir}
		if version != "" {
			args = append(args, "--python", findPython(version))
		}
		run(t, "", env, uv, args...)
	}
	run(t, filepath.Dir(file), env, uv, "pip", "install", "--quiet", "--python", python, "-r", file,
		"--reinstall-package", "inspect-carrel", "--refresh-package", "inspect-carrel") // it is ours, and may have changed
	words := strings.Fields(blockOf(t, name, "sh"))
	if len(words) < 3 || words[0] != "pip" || words[1] != "install" {
		t.Fatalf("docs/with/%s.md: the shell block is not a pip install: %q", name, words)
	}
	for _, p := range words[2:] {
		p, _, _ = strings.Cut(strings.Trim(p, `"'`), "[")
		if !strings.HasPrefix(p, "./") && !regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(p)+`(\[[\w,]+\])?==`).Match(pinned) {
			t.Errorf("docs/with/%s.md installs %s, which %s does not pin", name, p, file)
		}
	}
	return python
}
