package sdk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// block is a fenced block of the page.
type block struct {
	language, text string
}

// fenced finds the blocks of a page.
var fenced = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// blocks returns README.md's blocks in order.
func blocks(t *testing.T) []block {
	t.Helper()
	return blocksOf(t, "../../README.md")
}

// blocksOf returns a page's blocks in order. A block without a language fails the test; otherwise
// nobody would notice that it is not run.
func blocksOf(t *testing.T, file string) []block {
	t.Helper()
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []block
	for _, m := range fenced.FindAllStringSubmatch(string(page), -1) {
		all = append(all, block{m[1], m[2]})
	}
	if fences := strings.Count(string(page), "\n```"); fences != 2*len(all) {
		t.Fatalf("%d fences, %d blocks: each block needs a language", fences, len(all))
	}
	return all
}

// wants is the expected output of a block, by a line in the block.
var wants = map[string]string{
	"carrel serve &":                      `(?s)42\n.*notes\.txt\ni[a-z0-9]{20}`,
	"cat >agent.yaml <<'END'":             `(?s)allow`,
	"carrel fork $id -n 20 >forks":        `((the task|1)\n){40}`,
	"carrel rollback $id":                 `(?s)three weeks of work\n.*rm thesis`,
	"carrel sim --root . -c 'ls | wc -l'": `(?s)^\d+\n.*42\n`,
	"carrel run -- npm test":              `(?s)tests passed.*claude was here.*upgraded`,
}

// needBuild returns the directory of the built programs. The caller needs root for a network of its
// own.
func needBuild(t *testing.T) (bin string) {
	t.Helper()
	var err error
	if os.Getuid() != 0 {
		err = errors.New("a network of its own takes root")
	}
	testenv.Need(t, "root", err)
	if bin, err = filepath.Abs("../../bin"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bin + "/carrel"); err != nil {
		t.Fatalf("%v (build it with: make build)", err)
	}
	return bin
}

// TestReadme runs all that README.md tells its readers to type, from top to bottom: the shell
// blocks in one session, the programs between them as files. The machine has nothing of Carrel's
// yet: an empty home directory, and its own network in which no port is taken.
func TestReadme(t *testing.T) {
	t.Parallel() // with the others that say so: each waits for one program at a time
	bin := needBuild(t)
	nodeTests("*")(t) // these install the SDKs
	pythonTests("test_sync*.py")(t)
	home, err := os.MkdirTemp("/srv", "carrel-readme.") // a box has its own /tmp and /var/tmp
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	work := filepath.Join(home, "work")
	prepare(t, home, work)
	var script strings.Builder
	script.WriteString(prologue)
	n := 0
	for i, b := range blocks(t) {
		part := partOf(t, work, i, b)
		if part == "" {
			continue
		}
		n++
		fmt.Fprintf(&script, "echo '== block %d'\n%s\n", i, part)
	}
	if n < 9 {
		t.Errorf("only %d blocks are run", n)
	}
	out := session(t, home, work, bin, script.String())
	for line, want := range wants {
		found := false
		for i, b := range blocks(t) {
			if !strings.Contains(b.text, line) {
				continue
			}
			found = true
			_, after, _ := strings.Cut(out, fmt.Sprintf("== block %d\n", i))
			got, _, _ := strings.Cut(after, "== block ")
			if !regexp.MustCompile(want).MatchString(got) {
				t.Errorf("the block with %q prints\n%s\nwant %s", line, got, want)
			}
		}
		if !found {
			t.Errorf("no block has the line %q", line)
		}
	}
	for _, text := range []string{"== done", "hello from "} {
		if !strings.Contains(out, text) {
			t.Errorf("%q was not printed", text)
		}
	}
}

// prologue prepares the session: its own loopback, and a clean-up at the end.
const prologue = `set -euo pipefail
ip link set lo up
finish() { carrel kill --all >/dev/null 2>&1 || true; }
trap finish EXIT
# The daemon is started in the background: what comes next waits until it is there.
carrel() {
	if [ "$1" = create ] && [ -z "${up:-}" ]; then
		for _ in $(seq 300); do command carrel ls >/dev/null 2>&1 && break || sleep 0.2; done
		up=1
	fi
	command carrel "$@"
}
`

// partOf returns the shell text that runs a block, or "" for the block that builds the tested
// program.
func partOf(t *testing.T, work string, i int, b block) string {
	t.Helper()
	file := func(name string) string {
		name = filepath.Join(work, fmt.Sprintf("block%d", i), name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(b.text), 0o644)); err != nil {
			t.Fatal(err)
		}
		return name
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case b.language == "sh" && strings.HasPrefix(b.text, "make "):
		return ""
	case b.language == "sh":
		return b.text
	case b.language == "python":
		return root + "/test/sdk/python/.venv/bin/python " + file("main.py")
	case b.language == "js":
		name := file("main.mjs")
		if err := os.Symlink(root+"/test/sdk/js/node_modules", filepath.Join(filepath.Dir(name), "node_modules")); err != nil {
			t.Fatal(err)
		}
		return "node " + name
	case b.language == "go":
		return "(cd " + root + " && HOME=/root go run " + file("main.go") + ")"
	}
	t.Fatalf("a block in %s: this test does not know how to run it", b.language)
	return ""
}

// prepare makes the files that the page's commands name. A program stands for the agent, which is
// not here.
func prepare(t *testing.T, home, work string) {
	t.Helper()
	for name, text := range map[string]string{
		"package.json":      `{"name": "thing", "version": "1.0.0", "scripts": {"test": "echo tests passed"}}`,
		"upgrade.sh":        "#!/bin/sh\necho upgraded >state.txt\ncat state.txt\n",
		"project/notes.txt": "notes\n",
		"../tools/claude": "#!/bin/sh\nset -e\nmkdir ~/.claude.json.lock\necho claude was here >~/.claude.json.tmp.$$\nmv -f ~/.claude.json.tmp.$$ ~/.claude.json\n" +
			"rmdir ~/.claude.json.lock\necho x >>~/.claude/history.jsonl\ncat ~/.claude.json\n",
	} {
		name = filepath.Join(work, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(home, 0o755); err != nil {
		t.Fatal(err)
	}
}

// session runs a script in its own namespaces and returns its output.
func session(t *testing.T, home, work, bin, script string) string {
	t.Helper()
	name := filepath.Join(home, "session.sh")
	if err := os.WriteFile(name, []byte(script+"echo '== done'\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", "bash", name)
	cmd.Dir = work
	cmd.Env = []string{"HOME=" + home, "LANG=C.UTF-8", "PATH=" + home + "/tools:" + bin + ":" + os.Getenv("PATH"),
		"CARREL_DATA_DIR=" + home + "/data", "CARREL_CACHE_DIR=" + home + "/cache"}
	for _, v := range []string{"GOFLAGS", "GOPROXY", "GOSUMDB", "GONOSUMDB", "GOMODCACHE", "GOCACHE", "CGO_ENABLED"} {
		if value, ok := os.LookupEnv(v); ok {
			cmd.Env = append(cmd.Env, v+"="+value)
		}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}
