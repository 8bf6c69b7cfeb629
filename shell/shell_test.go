package shell_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/carrel-dev/carrel/shell"
	"github.com/carrel-dev/carrel/shell/hostfs"
	"github.com/carrel-dev/carrel/shell/tool"
)

// machine makes a machine that the test closes.
func machine(t testing.TB, o shell.Options) *shell.Machine {
	t.Helper()
	m, err := shell.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// says runs a script whose output must be exactly want.
func says(t testing.TB, m *shell.Machine, script, want string) {
	t.Helper()
	r, err := m.Run(t.Context(), script)
	if err != nil || r.Stdout != want || r.Stderr != "" || r.Status != 0 {
		t.Errorf("%s: %+v, %v; want %q", script, r, err, want)
	}
}

func TestRun(t *testing.T) {
	m := machine(t, shell.Options{Env: []string{"A=1", "LANG=C"}, Hostname: "desk", CPUs: 3, User: "ann"})
	says(t, m, "echo $A $LANG $(hostname) $(nproc) $(whoami) $HOME $PWD $0", "1 C desk 3 ann /home/ann /home/ann bash\n")
	says(t, m, "x=1; echo kept > f", "")
	says(t, m, "echo ${x-none}; cat f", "none\nkept\n")
	says(t, m, "", "")
	r, err := m.Run(t.Context(), "echo out; echo err >&2; exit 3")
	if err != nil || r.Stdout != "out\n" || r.Stderr != "err\n" || r.Status != 3 || r.Limit != "" {
		t.Errorf("%+v %v", r, err)
	}
	if r, err = m.Run(t.Context(), "kill -TERM $$"); err != nil || r.Status != 143 || r.Signal != 15 {
		t.Errorf("%+v %v", r, err)
	}
	says(t, machine(t, shell.Options{User: "root"}), "id -u; pwd; touch /etc/x", "0\n/root\n")
}

// TestLimitsNamed checks that the result names the limit that was reached.
func TestLimitsNamed(t *testing.T) {
	for _, c := range []struct {
		script string
		limits shell.Limits
		want   shell.Limit
		words  string
	}{
		{"while :; do :; done", shell.Limits{Steps: 100_000}, shell.LimitSteps, "100000 steps"},
		{"yes", shell.Limits{Output: 1 << 20}, shell.LimitOutput, "1 MiB"},
		{"x=x; while :; do x=$x$x; done", shell.Limits{Memory: 8 << 20}, shell.LimitMemory, "8 MiB"},
		{"sleep 100 & sleep 100", shell.Limits{Time: 200 * time.Millisecond}, shell.LimitTime, "200ms"},
	} {
		r, err := machine(t, shell.Options{Limits: c.limits}).Run(t.Context(), c.script)
		if err != nil || r.Limit != c.want || r.Signal != 9 || !strings.Contains(r.Message, c.words) {
			t.Errorf("%s: %q %q %d %v", c.script, r.Limit, r.Message, r.Status, err)
		}
	}
	// Linux refuses these calls with an error, and the script goes on.
	m := machine(t, shell.Options{Limits: shell.Limits{Disk: 1 << 20, Files: 100, FileSize: 1 << 19, Processes: 8, OpenFiles: 16, Depth: 20}})
	for script, word := range map[string]string{
		"for f in a b c; do yes | head -c 500000 > $f; done; rm a b c":    "No space left on device",
		"mkdir d; for i in {1..200}; do : > d/$i || break; done; rm -r d": "No space left on device",
		"for i in {1..10}; do sleep 1 & done":                             "fork: ",
		"for i in {1..20}; do exec {fd}>/dev/null; done":                  "Bad file descriptor",
		"f() { f; }; f": "nesting level",
	} {
		if r, err := m.Run(t.Context(), script); err != nil || r.Limit != "" || !strings.Contains(r.Stderr, word) {
			t.Errorf("%s: %q %.200q %v", script, r.Limit, r.Stderr, err)
		}
	}
	says(t, m, "echo fine", "fine\n")
}

// TestBadOptions checks that New refuses each wrong option and names it.
func TestBadOptions(t *testing.T) {
	seed := uint64(1)
	ok := func(context.Context, *shell.Call) int { return 0 }
	for field, o := range map[string]shell.Options{
		"Env":              {Env: []string{"A=1", "nothing"}},
		"User":             {User: "Ann Other"},
		"Hostname":         {Hostname: "a b"},
		"CPUs":             {CPUs: -1},
		"Now":              {Seed: &seed, Now: time.Now},
		"Programs":         {Programs: map[string]shell.Program{"a/b": ok}},
		"Programs ":        {Programs: map[string]shell.Program{"x": nil}},
		"Programs  ":       {Programs: map[string]shell.Program{"bash": ok}},
		"Commands":         {Commands: map[string]tool.Command{"x": nil}},
		"Commands ":        {Programs: map[string]shell.Program{"x": ok}, Commands: map[string]tool.Command{"x": shell.Program(ok).Command()}},
		"Limits.Memory":    {Limits: shell.Limits{Memory: -2}},
		"Limits.Time":      {Limits: shell.Limits{Time: -time.Second}},
		"Limits.OpenFiles": {Limits: shell.Limits{OpenFiles: -5}},
	} {
		m, err := shell.New(o)
		var e *shell.Error
		if m != nil || !errors.As(err, &e) || e.Field != strings.TrimSpace(field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	m := machine(t, shell.Options{})
	for name, c := range map[string]shell.Command{"env": {Script: ":", Env: []string{"=x"}}, "dir": {Script: ":", Dir: "nowhere"}} {
		if _, err := m.Start(t.Context(), c); err == nil {
			t.Errorf("%s: taken", name)
		} else if name == "dir" && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
	for name, err := range map[string]error{"nil": m.Mount("/x", nil, shell.ReadOnly), "mode": m.Mount("/x", &hostfs.Source{}, 7), "writer": m.Mount("/x", &hostfs.Source{}, shell.WriteBack)} {
		if err == nil {
			t.Errorf("mount %s: taken", name)
		}
	}
}

func TestPrograms(t *testing.T) {
	shout := func(_ context.Context, c *shell.Call) int {
		b, err := io.ReadAll(c.Stdin)
		if err != nil {
			return 1
		}
		fmt.Fprint(c.Stdout, strings.ToUpper(string(b)))
		fmt.Fprintln(c.Stderr, c.Name, c.Args, c.Dir, c.User, strings.Contains(strings.Join(c.Env, " "), "A=b"))
		if err := c.Files.WriteFile("made", b, 0o666); err != nil {
			return 2
		}
		return 300
	}
	given := map[string]shell.Program{"shout": shout, "jq": func(_ context.Context, c *shell.Call) int { fmt.Fprintln(c.Stdout, "mine"); return 0 },
		"breaks": func(context.Context, *shell.Call) int { panic("oh") }, "waits": func(ctx context.Context, _ *shell.Call) int { <-ctx.Done(); return 0 }}
	m := machine(t, shell.Options{Programs: given})
	delete(given, "jq") // the machine has its own copy of the table
	r, err := m.Run(t.Context(), "mkdir d; cd d; umask 077; export A=b; printf 'hi\n' | shout x 2>&1 | cat; echo ${PIPESTATUS[1]}; ls -l made | cut -c1-10; jq")
	if want := "HI\nshout [x] /home/user/d user true\n44\n-rw-------\nmine\n"; err != nil || r.Stdout != want {
		t.Errorf("%+v %v", r, err)
	}
	if r, err = m.Run(t.Context(), "breaks; echo $?; timeout 0.1 waits; echo $?"); err != nil || r.Stdout != "70\n124\n" || !strings.Contains(r.Stderr, "failed inside: oh") {
		t.Errorf("%+v %v", r, err)
	}
	if r, err = machine(t, shell.Options{Programs: given, Limits: shell.Limits{Steps: 100_000}}).Run(t.Context(), "yes | shout"); err != nil || r.Limit != shell.LimitSteps {
		t.Errorf("%+v %v", r, err)
	}
}

// TestStream talks with a script while it runs.
func TestStream(t *testing.T) {
	m := machine(t, shell.Options{})
	in, typed := io.Pipe()
	heard, out := io.Pipe()
	p, err := m.Start(t.Context(), shell.Command{Args: []string{"arg"}, Stdin: in, Stdout: out})
	if err != nil {
		t.Fatal(err)
	}
	answers := make([]byte, 64)
	for _, c := range [][2]string{{"x=1; echo $1\n", "arg\n"}, {"echo $((x+1))\n", "2\n"}} {
		if _, err := io.WriteString(typed, c[0]); err != nil {
			t.Fatal(err)
		}
		n, err := io.ReadAtLeast(heard, answers, len(c[1]))
		if err != nil || string(answers[:n]) != c[1] {
			t.Fatalf("%q %v", answers[:n], err)
		}
	}
	_ = typed.Close()
	if e, err := p.Wait(); err != nil || e.Status != 0 {
		t.Errorf("%+v %v", e, err)
	}
	if e, err := p.Wait(); err != nil || e.Status != 0 {
		t.Errorf("again: %+v %v", e, err)
	}
}

func TestTerminal(t *testing.T) {
	m := machine(t, shell.Options{})
	var screen bytes.Buffer
	p, err := m.Start(t.Context(), shell.Command{Script: "stty size; test -t 0 && test -t 1 && echo tty; read x; stty size; echo got $x",
		Terminal: &shell.Terminal{Cols: 90, Rows: 30}, Stdin: strings.NewReader("word\r"), Stdout: &screen})
	if err != nil {
		t.Fatal(err)
	}
	e, err := p.Wait()
	if err != nil || e.Status != 0 {
		t.Errorf("%+v %v", e, err)
	}
	for _, line := range []string{"30 90\r\n", "tty\r\n", "got word\r\n"} { // what is typed early is shown between them
		if !strings.Contains(screen.String(), line) {
			t.Errorf("no %q in %q", line, screen.String())
		}
	}
}

// TestEnd checks what ends a script from outside, and the error that reports it.
func TestEnd(t *testing.T) {
	m := machine(t, shell.Options{})
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("tea is ready"))
	defer cancel()
	r, err := m.Run(ctx, "echo begun; sleep 100 & sleep 100")
	if err == nil || err.Error() != "tea is ready" || r.Stdout != "begun\n" || r.Signal != 9 {
		t.Errorf("%+v %v", r, err)
	}
	if _, err := m.Run(ctx, "echo x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	// Jobs end with their script.
	says(t, m, "(sleep 100; echo late) & echo now", "now\n")
	if u := m.Usage(); u.Processes != 0 {
		t.Errorf("%d processes are left", u.Processes)
	}
	p, err := m.Start(t.Context(), shell.Command{Script: "trap 'echo bye; exit 4' TERM; while :; do sleep 0.01; done", Stdout: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	if err := p.Signal(15); err != nil {
		t.Error(err)
	}
	if e, err := p.Wait(); err != nil || e.Status != 4 && e.Status != 143 {
		t.Errorf("%+v %v", e, err)
	}
	// A writer that fails ends the script, and its error is reported.
	broken := errors.New("no paper")
	p, err = m.Start(t.Context(), shell.Command{Script: "yes", Stdout: writerFunc(func([]byte) (int, error) { return 0, broken })})
	if err != nil {
		t.Fatal(err)
	}
	if e, err := p.Wait(); !errors.Is(err, broken) || e.Status != 141 {
		t.Errorf("%+v %v", e, err)
	}
	p, err = m.Start(t.Context(), shell.Command{Script: "sleep 100"})
	if err != nil {
		t.Fatal(err)
	}
	_ = m.Close()
	_ = m.Close()
	if e, err := p.Wait(); !errors.Is(err, shell.ErrClosed) || e.Signal != 9 {
		t.Errorf("%+v %v", e, err)
	}
	if _, err := m.Run(t.Context(), ":"); !errors.Is(err, shell.ErrClosed) {
		t.Error(err)
	}
	if _, err := m.Fork(); !errors.Is(err, shell.ErrClosed) {
		t.Error(err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestFork(t *testing.T) {
	m := machine(t, shell.Options{Programs: map[string]shell.Program{"mine": func(_ context.Context, c *shell.Call) int { fmt.Fprintln(c.Stdout, "mine"); return 0 }}})
	says(t, m, "echo one > f", "")
	fork, err := m.Fork()
	if err != nil {
		t.Fatal(err)
	}
	says(t, m, "echo two > f", "")
	says(t, fork, "cat f; mine; rm f", "one\nmine\n")
	_ = fork.Close()
	says(t, m, "cat f", "two\n")
	if b, err := fork.Files().ReadFile("/etc/shells"); err != nil || len(b) == 0 {
		t.Errorf("the disk of a closed machine: %q %v", b, err)
	}
}

// TestSeed runs the same scripts in two machines.
func TestSeed(t *testing.T) {
	seed := uint64(7)
	script := `date; echo $RANDOM $$; head -c 4 /dev/urandom | od -An -tx1; touch f; stat -c %y f /usr/bin/ls /home/user; sleep 3600; date; (echo a & echo b & wait)`
	var first string
	for range 2 {
		r, err := machine(t, shell.Options{Seed: &seed}).Run(t.Context(), script)
		if err != nil || r.Status != 0 || r.Stderr != "" {
			t.Fatalf("%+v %v", r, err)
		}
		if first == "" {
			first = r.Stdout
		}
		if r.Stdout != first {
			t.Errorf("%s\n%s", first, r.Stdout)
		}
	}
	if !strings.Contains(first, "Jan  1") {
		t.Error(first)
	}
}

func TestFiles(t *testing.T) {
	m := machine(t, shell.Options{})
	f := m.Files()
	for _, err := range []error{f.MkdirAll("a/b", 0o755), f.WriteFile("a/b/c", []byte("text"), 0o640), f.WriteFile("/tmp/x", nil, 0o600),
		f.Symlink("b/c", "a/link"), f.Symlink("/etc/passwd", "a/out"), f.Rename("/tmp/x", "a/x"), f.Chmod("a/x", 0o400)} {
		if err != nil {
			t.Error(err)
		}
	}
	says(t, m, "cat a/link; stat -c '%U %a' a/b/c a/x; mkfifo a/pipe", "textuser 640\nuser 400\n")
	if err := f.WriteFile("/etc/x", nil, 0o644); !errors.Is(err, fs.ErrPermission) {
		t.Error(err)
	}
	if err := m.RootFiles().WriteFile("etc/x", nil, 0o644); err != nil {
		t.Error(err)
	}
	if _, err := f.ReadFile("nowhere"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := f.FS(".").Open("a/pipe"); !errors.Is(err, fs.ErrInvalid) {
		t.Error(err)
	}
	if err := f.Remove("a/pipe"); err != nil {
		t.Error(err)
	}
	if err := fstest.TestFS(f.FS("."), "a/b/c", "a/link", "a/x"); err != nil {
		t.Error(err)
	}
	if b, err := fs.ReadFile(f.FS("/"), "etc/shells"); err != nil || len(b) == 0 {
		t.Errorf("%q %v", b, err)
	}
	for _, name := range []string{"/etc/shells", "../etc/shells", "", "a/"} {
		if _, err := fs.ReadFile(f.FS("/"), name); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if target, err := f.Readlink("a/link"); err != nil || target != "b/c" {
		t.Errorf("%q %v", target, err)
	}
	if list, err := f.ReadDir("a"); err != nil || len(list) != 4 || list[0].Name() != "b" || !list[0].IsDir() {
		t.Errorf("%v %v", list, err)
	}
	if i, err := f.Lstat("a/link"); err != nil || i.Mode().Type() != fs.ModeSymlink || i.Name() != "link" {
		t.Errorf("%v %v", i, err)
	}
	if err := errors.Join(f.RemoveAll("a"), f.RemoveAll("a")); err != nil {
		t.Error(err)
	}
}

// TestMount shows a directory of the host in each mode.
func TestMount(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("host\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	src, err := hostfs.OpenWritable(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := machine(t, shell.Options{})
	defer func() { _ = m.Close(); _ = src.Close() }()
	for at, mode := range map[string]shell.MountMode{"/ro": shell.ReadOnly, "/cow": shell.Overlay, "/rw": shell.WriteBack} {
		if err := m.Mount(at, src, mode); err != nil {
			t.Fatal(err)
		}
	}
	r, err := m.Run(t.Context(), "cat /ro/f; echo x > /ro/f; echo memory > /cow/f; cat /cow/f /ro/f; echo back > /rw/new; cat /ro/new")
	if err != nil || r.Stdout != "host\nmemory\nhost\nback\n" || !strings.Contains(r.Stderr, "Read-only") {
		t.Errorf("%+v %v", r, err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "new")); err != nil || string(b) != "back\n" {
		t.Errorf("%q %v", b, err)
	}
}

// TestHammer uses one machine from many goroutines, and closes it while they run.
func TestHammer(t *testing.T) {
	m := machine(t, shell.Options{Limits: shell.Limits{Processes: 100}})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 20 {
				r, err := m.Run(t.Context(), fmt.Sprintf("echo %d > f%d; cat f%d | tr 0-9 a-j", n, i, i))
				if errors.Is(err, shell.ErrClosed) {
					return
				}
				if err != nil || len(r.Stdout) < 2 {
					t.Errorf("%+v %v", r, err)
				}
				if fork, err := m.Fork(); err == nil {
					_ = fork.Close()
				}
				_ = m.Usage()
			}
		})
	}
	time.Sleep(50 * time.Millisecond)
	_ = m.Close()
	all.Wait()
}

// BenchmarkNew measures the cost of a machine.
func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		m, err := shell.New(shell.Options{})
		if err != nil {
			b.Fatal(err)
		}
		_ = m.Close()
	}
}
