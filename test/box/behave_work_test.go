package box_test

import (
	"archive/zip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// work is a job that people give to a box.
type work struct {
	name  string
	need  string            // a program
	files map[string]string // in the project
	flags []string
	shell string
	want  []string // parts of the output
	long  bool
}

// works are jobs of many kinds.
func works() []work {
	return []work{
		{name: "npm test", need: "npm", files: map[string]string{
			"package.json": `{"name":"x","version":"1.0.0","scripts":{"pretest":"echo before","test":"node --test","build":"node build.js > out.txt"}}`,
			"x.test.js":    "const test=require('node:test'),assert=require('assert');test('adds',()=>assert.equal(1+1,2));\n", "build.js": "console.log('built')\n",
		}, shell: "npm test && npm run --silent build && cat out.txt && rm out.txt", want: []string{"before", "pass 1", "fail 0", "built"}},
		{name: "npm install from a directory", need: "npm", files: map[string]string{
			"package.json": `{"name":"x","version":"1.0.0","dependencies":{"dep":"file:./dep"}}`, "dep/package.json": `{"name":"dep","version":"1.0.0","main":"i.js"}`, "dep/i.js": "module.exports='from dep'\n",
		}, flags: []string{"--profile", "node"}, shell: "npm install --offline --no-audit --no-fund && node -p \"require('dep')\"", want: []string{"from dep"}},
		{name: "make", need: "make", files: map[string]string{
			"Makefile": "all: hello\n\t./hello\nhello: hello.o\n\t$(CC) -o $@ $<\nhello.o: hello.c\nclean:\n\trm -f hello hello.o\n", "hello.c": "#include <stdio.h>\nint main(){puts(\"hello from C\");return 0;}\n",
		}, shell: "make -j2 && make clean", want: []string{"hello from C"}},
		{name: "go test", need: "go", long: true, files: map[string]string{
			"go.mod": "module example.com/x\n\ngo 1.22\n", "x.go": "package x\n\n// Add adds.\nfunc Add(a, b int) int { return a + b }\n", "x_test.go": "package x\n\nimport \"testing\"\n\nfunc TestAdd(t *testing.T) {\n\tif Add(1, 1) != 2 {\n\t\tt.Fatal()\n\t}\n}\n",
			"../.cache/go-build/README": "", "../go/pkg/README": "", "cmd/y/main.go": "package main\n\nimport \"example.com/x\"\n\nfunc main() { println(x.Add(1, 2)) }\n",
		}, flags: []string{"--profile", "go"}, shell: "go vet ./... && go test ./... && go run ./cmd/y", want: []string{"ok  \texample.com/x", "3"}},
		{name: "unittest", need: "python3", files: map[string]string{
			"pkg/__init__.py": "def add(a, b): return a + b\n", "tests/__init__.py": "", "tests/test_pkg.py": "import unittest, tempfile, subprocess, sys, pkg\nclass T(unittest.TestCase):\n  def test_add(self): self.assertEqual(pkg.add(1,1),2)\n  def test_tmp(self):\n    with tempfile.TemporaryDirectory() as d: open(d+'/f','w').write('x')\n  def test_sub(self): self.assertEqual(subprocess.check_output([sys.executable,'-c','print(1)']),b'1\\n')\n",
		}, shell: "python3 -m unittest -v", want: []string{"Ran 3 tests", "OK"}},
		{name: "venv and pip", need: "python3", long: true, files: map[string]string{"run.py": "import wheelhouse; print(wheelhouse.word)\n"},
			shell: "python3 -m venv venv && venv/bin/pip install --disable-pip-version-check --no-index ./wheelhouse-1.0-py3-none-any.whl && venv/bin/python run.py", want: []string{"Successfully installed wheelhouse-1.0", "from the wheel"}},
		{name: "git, a repository that exists", need: "git", shell: "git status --short; echo new >new.txt && git add . && git commit -q -m second && git log --oneline | wc -l && git checkout -q -b other && git branch | wc -l && " +
			"git stash list; echo x >>new.txt; git stash -q && git stash pop -q && git commit -qam third && git checkout -q main && git merge -q other && git tag v1 && git gc -q && git fsck && git log --oneline | wc -l", want: []string{"2\n2\n", "3\n"}},
		{name: "git, hooks and settings stay", need: "git", shell: "git config user.name Mallory; git config core.hooksPath /tmp; echo x >.git/hooks/pre-commit; git config user.name; true", want: []string{"Ann\n"}},
		{name: "git worktree", need: "git", shell: "cd ../tree && echo new >new.txt && git add . && git commit -q -m 'in the worktree' && git log --oneline | wc -l", want: []string{"2\n"}},
		{name: "tar and zip", files: map[string]string{"a/b": "b\n"}, shell: "tar czf /tmp/a.tgz a && rm -r a && tar xzf /tmp/a.tgz && cat a/b", want: []string{"b\n"}},
		{name: "sqlite by python", need: "python3", shell: `python3 -c "import sqlite3; c=sqlite3.connect('x.db'); c.execute('create table t(a)'); c.execute('insert into t values (7)'); c.commit(); print(c.execute('select a from t').fetchall())" && rm x.db`, want: []string{"[(7,)]"}},
	}
}

// TestWork runs people's usual programs, as root and as an unprivileged user.
func TestWork(t *testing.T) {
	for _, job := range works() {
		t.Run(job.name, func(t *testing.T) {
			if job.long {
				testenv.Long(t, "the work takes long")
			}
			if job.need != "" {
				_, err := exec.LookPath(job.need)
				testenv.Need(t, job.need, err)
			}
			both(t, func(t *testing.T, w *world) {
				w.write(w.home+"/.gitconfig", "[user]\n\tname = Ann\n\temail = ann@example.com\n")
				for name, text := range job.files {
					w.write(filepath.Join(w.project, name), text)
				}
				dir := w.project
				switch {
				case strings.HasPrefix(job.name, "git"):
					repository(w)
					if job.name == "git worktree" {
						w.git("worktree", "add", "-q", "../tree")
						dir = w.home + "/tree"
					}
				case job.name == "venv and pip":
					wheel(w)
				}
				cmd := w.box(append(job.flags, "-c", job.shell)...)
				cmd.Dir = dir
				r := w.run(cmd)
				for _, want := range job.want {
					if r.code != 0 || !strings.Contains(r.all(), want) {
						t.Errorf("exit %d, no %q in\n%s", r.code, want, r.all())
					}
				}
				if job.name == "git, hooks and settings stay" {
					if strings.Contains(w.read(w.project+"/.git/config"), "Mallory") || w.read(w.project+"/.git/hooks/pre-commit") != "" {
						t.Error("git's settings were changed")
					}
				}
				for p, text := range w.state([]string{"{project}"}) {
					if !strings.Contains(text, " uid "+uidText(w)) {
						t.Errorf("%s does not belong to the user: %.100s", p, text)
					}
				}
			})
		})
	}
}

// wheel makes a package for pip.
func wheel(w *world) {
	w.t.Helper()
	p := filepath.Join(w.project, "wheelhouse-1.0-py3-none-any.whl")
	f, err := os.Create(p)
	if err != nil {
		w.t.Fatal(err)
	}
	z := zip.NewWriter(f)
	info := "wheelhouse-1.0.dist-info/"
	for _, file := range [][2]string{{"wheelhouse.py", "word = 'from the wheel'\n"}, {info + "METADATA", "Metadata-Version: 2.1\nName: wheelhouse\nVersion: 1.0\n"},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}, {info + "RECORD", "wheelhouse.py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n"}} {
		e, err := z.Create(file[0])
		if err != nil {
			w.t.Fatal(err)
		}
		_, _ = e.Write([]byte(file[1]))
	}
	if err := z.Close(); err != nil {
		w.t.Fatal(err)
	}
	_ = f.Close()
	_ = os.Chown(p, w.uid, w.uid)
}

// TestGitInit makes a repository inside. git writes the repository's configuration. That must not
// make git run anything outside.
func TestGitInit(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		w.write(w.home+"/.gitconfig", "[user]\n\tname = Ann\n\temail = ann@example.com\n")
		r := w.run(w.box("-c", "git init -q -b main . && git add . && git commit -q -m first && git log --oneline | wc -l"))
		if r.out != "1\n" {
			t.Errorf("exit %d %s", r.code, r.all())
		}
		if found, _ := filepath.Glob(w.project + "/.git/hooks/*"); len(found) > 0 {
			for _, p := range found {
				if !strings.HasSuffix(p, ".sample") {
					t.Errorf("a hook: %s", p)
				}
			}
		}
	})
}

// TestAgent runs a real coding agent's command line in a box.
func TestAgent(t *testing.T) {
	_, err := exec.LookPath("npm")
	testenv.Need(t, "node", err)
	modules, err := filepath.Abs("js/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(modules + "/.bin/claude"); err != nil {
		if out, err := exec.Command("npm", "ci", "--prefix", "js", "--silent", "--no-audit", "--no-fund").CombinedOutput(); err != nil {
			t.Fatalf("npm: %v\n%s", err, out)
		}
	}
	bothOr(t, "user", func(t *testing.T, w *world) {
		// In the user's home, where npm installs it.
		if out, err := exec.Command("cp", "-a", modules, w.home+"/node_modules").CombinedOutput(); err != nil {
			t.Fatalf("%s", out)
		}
		claude := w.home + "/node_modules/.bin/claude"
		calls := [][]string{{"--help"}, {"--version"}, {"mcp", "--help"}, {"config", "--help"}}
		if testing.Short() {
			calls = calls[:1]
		}
		for _, args := range calls {
			want := w.run(w.command(claude, args...))
			for _, flags := range [][]string{nil, {"--profile", "claude-code"}} {
				got := w.run(w.box(append(append(flags, "--", claude), args...)...))
				if got.out != want.out || got.code != want.code || want.code != 0 {
					t.Errorf("%v %v: exit %d\n%.300s\n%s\noutside: exit %d\n%.300s\n%s", flags, args, got.code, got.out, got.err, want.code, want.out, want.err)
				}
			}
		}
		// Without a network and a login it can do nothing, but must not hang. It saves its state,
		// and finds it the next time.
		user := ""
		for range 2 {
			got := w.run(w.box("--profile", "claude-code", "--timeout", "60s", "--", claude, "-p", "say hello"))
			if got.code == 124 || got.code == 125 || strings.Contains(got.err, "  write ") {
				t.Errorf("exit %d %s", got.code, got.all())
			}
			state := regexp.MustCompile(`"userID": "\w+"`).FindString(w.read(w.home + "/.claude.json"))
			if state == "" || user != "" && state != user {
				t.Errorf("its state is %s, and was %s", w.read(w.home+"/.claude.json"), user)
			}
			user = state
		}
		if left := w.sh(w.home, "ls -d .claude.json.* | grep -v backup").out; left != "" {
			t.Errorf("it left %s", left)
		}
	})
}
