//go:build linux

package guard_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/box"
	"github.com/carrel-dev/carrel/internal/box/guard"
	"github.com/carrel-dev/carrel/internal/linux/seccomp"
	"github.com/carrel-dev/carrel/internal/refusal"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// world is a guard for a directory. Tests ask it about calls of this process.
type world struct {
	t     *testing.T
	dir   string // the writable directory
	state string // of the host, beside it
	log   *refusal.Log
	guard *guard.Guard
	pin   runtime.Pinner
	box   atomic.Pointer[box.Box] // of tests with a real one
}

// protectedNames returns a short form of the names in the settings.
func protectedNames(dir string) []guard.Protected {
	var out []guard.Protected
	for _, p := range []string{".git/hooks", ".git/config", ".git/modules/*/hooks", ".mcp.json", ".vscode", ".claude/agents", "*.code-workspace", ".npmrc"} {
		out = append(out, guard.Protected{Dir: dir, Pattern: p, Deep: true, Rule: "built-in: names", Allow: "--unprotect " + p})
	}
	return out
}

// newWorld makes the directory, calls prepare to fill it, and makes the guard.
func newWorld(t *testing.T, prepare func(dir string), change func(*guard.Rules)) *world {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: filepath.Join(base, "work"), state: filepath.Join(base, "state"), log: refusal.New(refusal.Options{})}
	if err := os.MkdirAll(w.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if prepare != nil {
		prepare(w.dir)
		time.Sleep(20 * time.Millisecond) // file times have steps of up to 10 ms
	}
	r := guard.Rules{
		Paths:     []guard.Path{{Path: w.dir, Writable: true}, {Path: "/dev", Writable: true}},
		Protected: protectedNames(w.dir),
		Roots:     []string{w.dir}, Quarantine: filepath.Join(w.state, "quarantine"),
	}
	if change != nil {
		change(&r)
	}
	w.guard, err = guard.New(r, w.log, func() *os.File { return nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.guard.Close(); w.pin.Unpin() })
	return w
}

// call asks the guard about a call of this process. It turns strings and bytes into pointers.
func (w *world) call(name string, args ...any) seccomp.Answer {
	c := seccomp.Call{PID: os.Getpid(), Name: name}
	for i, a := range args {
		switch a := a.(type) {
		case int:
			c.Args[i] = uint64(a)
		case string:
			c.Args[i] = w.pointer(append([]byte(a), 0))
		case []byte:
			c.Args[i] = w.pointer(a)
		}
	}
	return w.guard.Answer(c)
}

func (w *world) pointer(b []byte) uint64 {
	w.pin.Pin(&b[0])
	return uint64(uintptr(unsafe.Pointer(&b[0])))
}

// path returns the path of a name below the directory.
func (w *world) path(name string) string { return w.dir + "/" + name }

// refused lists the entries of the log.
func (w *world) refused() []string {
	list, _ := w.log.List()
	var out []string
	for _, r := range list {
		minor := ""
		if r.Minor {
			minor = " (minor)"
		}
		out = append(out, string(r.Kind)+" "+strings.TrimPrefix(r.What, w.dir+"/")+minor)
	}
	return out
}

func mkdir(t *testing.T, names ...string) {
	t.Helper()
	for _, n := range names {
		if err := os.MkdirAll(n, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func write(t *testing.T, names ...string) {
	t.Helper()
	for _, n := range names {
		mkdir(t, filepath.Dir(n))
		if err := os.WriteFile(n, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

const creating = unix.O_CREAT | unix.O_WRONLY | unix.O_TRUNC

func TestProtectedNames(t *testing.T) {
	w := newWorld(t, func(dir string) {
		mkdir(t, dir+"/.git/modules", dir+"/.git/objects", dir+"/.git/refs", dir+"/sub/deep", dir+"/nested/.git", dir+"/node_modules/p/.git", dir+"/x/hooks", dir+"/y", dir+"/bring/agents", dir+"/.claude", dir+"/z/modules/m/hooks")
		write(t, dir+"/.git/config", dir+"/nested/.git/config", dir+"/README")
		for link, to := range map[string]string{"here": ".", "dangling": ".mcp.json", "abs": dir + "/.npmrc", "chain": "dangling", "gitlink": ".git", "fine": "other"} {
			if err := os.Symlink(to, dir+"/"+link); err != nil {
				t.Fatal(err)
			}
		}
	}, func(r *guard.Rules) {
		dir := r.Paths[0].Path
		r.Paths = append(r.Paths, guard.Path{Path: dir + "/.git/config", Rule: "ro"}, guard.Path{Path: dir + "/nested/.git/config", Rule: "ro"}, guard.Path{Path: dir + "/opened/.vscode", Writable: true})
	})
	at := unix.AT_FDCWD
	for _, c := range []struct {
		name   string
		refuse bool
		call   []any
	}{
		{"a protected file", true, []any{"openat", at, ".mcp.json", creating}},
		{"any other file", false, []any{"openat", at, "main.go", creating}},
		{"a protected directory", true, []any{"mkdir", ".vscode"}},
		{"with slashes at the end", true, []any{"mkdir", ".vscode///"}},
		{"in other letters", true, []any{"mkdirat", at, ".VSCode"}},
		{"hooks of the repository", true, []any{"mkdir", ".git/hooks"}},
		{"objects of the repository", false, []any{"mkdir", ".git/objects/ab"}},
		{"an index lock", false, []any{"openat", at, ".git/index.lock", creating}},
		{"config, which exists", true, []any{"openat", at, ".git/config", unix.O_WRONLY}},
		{"a directory that exists", false, []any{"mkdir", ".claude"}},
		{"agents", true, []any{"mkdir", ".claude/agents"}},
		{"settings of the agent", false, []any{"openat", at, ".claude/notes", creating}},
		{"a pattern", true, []any{"creat", "x.code-workspace", 0o644}},
		{"through a link to the directory", true, []any{"openat", at, "here/.mcp.json", creating}},
		{"through a link to .git", true, []any{"mkdir", "gitlink/hooks"}},
		{"through dots", true, []any{"openat", at, "sub/deep/../.././.mcp.json", creating}},
		{"through a dangling link", true, []any{"openat", at, "dangling", creating}},
		{"through two", true, []any{"openat", at, "chain", creating}},
		{"through an absolute one", true, []any{"openat", at, "abs", creating}},
		{"through one, but not followed", false, []any{"openat", at, "dangling", creating | unix.O_NOFOLLOW}},
		{"through one that is fine", false, []any{"openat", at, "fine", creating}},
		{"through /proc/self/cwd", true, []any{"mkdir", "/proc/self/cwd/.vscode"}},
		{"for reading and writing", true, []any{"openat", at, ".npmrc", unix.O_RDWR | unix.O_CREAT}},
		{"not there, not created", false, []any{"openat", at, ".npmrc", unix.O_RDWR}},
		{"a link in its place", true, []any{"symlink", "evil", ".mcp.json"}},
		{"a link elsewhere", false, []any{"symlink", ".mcp.json", "elsewhere"}},
		{"a hard link in its place", true, []any{"link", "README", ".mcp.json"}},
		{"a node in its place", true, []any{"mknod", ".mcp.json", unix.S_IFREG, 0}},
		{"rename onto it", true, []any{"rename", "README", ".mcp.json"}},
		{"renameat2 onto it", true, []any{"renameat2", at, "README", at, ".mcp.json", 0}},
		{"rename something else", false, []any{"rename", "README", "README.md"}},
		{"rename the repository away", true, []any{"rename", ".git", "old"}},
		{"rename the parent of a repository", true, []any{"rename", "nested", "old"}},
		{"rename what exists away", true, []any{"rename", ".git/config", "c"}},
		{"exchange it", true, []any{"renameat2", at, "y", at, ".git", unix.RENAME_EXCHANGE}},
		{"bring agents along", true, []any{"renameat2", at, "bring", at, ".claude", unix.RENAME_EXCHANGE}},
		{"bring hooks of a submodule along", true, []any{"rename", "z/modules/m", ".git/modules/n"}},
		{"link to a submodule", true, []any{"symlink", "../../z/modules/m", ".git/modules/n"}},
		{"bring nothing along", false, []any{"rename", "y", ".claude"}},
		{"remove it", true, []any{"unlinkat", at, ".git/config", 0}},
		{"remove what is not there", false, []any{"unlinkat", at, ".mcp.json", 0}},
		{"in a directory that is no repository", false, []any{"openat", at, "sub/.mcp.json", creating}},
		{"in a repository below", true, []any{"openat", at, "nested/.mcp.json", creating}},
		{"hooks of a repository below", true, []any{"mkdir", "nested/.git/hooks"}},
		{"in an installed package", false, []any{"openat", at, "node_modules/p/.npmrc", creating}},
		{"opened by a rule", false, []any{"mkdir", "opened/.vscode/x"}},
		{"a name that is too long", false, []any{"mkdir", strings.Repeat("a", 5000)}},
		{"no name", false, []any{"mkdir", ""}},
		{"no memory", false, []any{"mkdir", 8}},
		{"a bad descriptor", false, []any{"mkdirat", 9999, ".vscode"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Chdir(w.dir)
			args := append([]any{}, c.call[1:]...)
			got := w.call(c.call[0].(string), args...)
			if want := map[bool]seccomp.Answer{true: {Errno: unix.EACCES}, false: {Continue: true}}[c.refuse]; got != want {
				t.Errorf("%v: %+v, want %+v", c.call, got, want)
			}
		})
	}
	if w.refused() == nil {
		t.Error("nothing was reported")
	}
}

// TestFreshRepository makes and clones repositories as git does.
func TestFreshRepository(t *testing.T) {
	w := newWorld(t, func(dir string) { mkdir(t, dir+"/x/hooks") }, nil)
	t.Chdir(w.dir)
	do := func(want bool, name string, args ...any) {
		t.Helper()
		if got := w.call(name, args...); got.Continue != want {
			t.Errorf("%s %v: %+v", name, args, got)
		}
	}
	do(false, "rename", "x", ".git")
	do(false, "symlink", "x", ".git")
	do(true, "mkdir", ".git")
	mkdir(t, ".git")
	do(true, "mkdir", ".git/hooks")
	do(true, "openat", unix.AT_FDCWD, ".git/config", creating)
	do(true, "mkdir", "clone")
	mkdir(t, "clone/.git")
	do(true, "mkdir", "clone/.git/hooks")
	do(true, "openat", unix.AT_FDCWD, "clone/.git/config.lock", creating)
	write(t, "clone/.git/config.lock")
	do(true, "rename", "clone/.git/config.lock", "clone/.git/config")
	do(true, "openat", unix.AT_FDCWD, "clone/.npmrc", creating)
	do(true, "mkdir", "clone/.vscode")
	if r := w.refused(); len(r) != 2 {
		t.Errorf("refused: %v", r)
	}
}

func TestReports(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("as an ordinary user")
	}
	w := newWorld(t, nil, nil)
	ro := filepath.Join(filepath.Dir(w.dir), "lib")
	write(t, ro+"/there", ro+"/__pycache__/a.pyc")
	for _, c := range []struct {
		want string
		call []any
	}{
		{"write " + ro + "/new", []any{"openat", unix.AT_FDCWD, ro + "/new", creating}},
		{"write " + ro + "/there", []any{"openat", unix.AT_FDCWD, ro + "/there", unix.O_WRONLY}},
		{"write " + ro + "/there (minor)", []any{"open", ro + "/there", unix.O_RDWR}},
		{"write " + ro + "/dir", []any{"mkdir", ro + "/dir"}},
		{"write " + ro + "/there", []any{"unlinkat", unix.AT_FDCWD, ro + "/there", 0}},
		{"write " + ro + "/there", []any{"rename", ro + "/there", ro + "/b"}},
		{"write " + ro + "/there", []any{"chmod", ro + "/there", 0o777}},
		{"write " + ro + "/there (minor)", []any{"file_setattr", unix.AT_FDCWD, ro + "/there", 0, 0}},
		{"write " + ro + "/__pycache__/b.pyc (minor)", []any{"openat", unix.AT_FDCWD, ro + "/__pycache__/b.pyc", creating}},
		{"", []any{"openat", unix.AT_FDCWD, ro + "/no/file", creating}},
		{"", []any{"openat", unix.AT_FDCWD, ro + "/absent", unix.O_WRONLY}},
		{"", []any{"mkdir", ro}},
		{"", []any{"unlinkat", unix.AT_FDCWD, ro + "/absent", 0}},
		{"", []any{"openat", unix.AT_FDCWD, "/dev/null", unix.O_RDWR}},
		{"", []any{"openat", unix.AT_FDCWD, "/dev/tty", unix.O_RDWR}},
	} {
		w.log = refusal.New(refusal.Options{})
		w2 := newWorldWithLog(w)
		if got := w2.call(c.call[0].(string), c.call[1:]...); !got.Continue {
			t.Errorf("%v: %+v", c.call, got)
		}
		if got := strings.Join(w2.refused(), ", "); got != c.want {
			t.Errorf("%v: reported %q, want %q", c.call, got, c.want)
		}
	}
}

// newWorldWithLog returns a guard for the same directory with an empty log.
func newWorldWithLog(w *world) *world {
	n := &world{t: w.t, dir: w.dir, log: w.log}
	g, err := guard.New(guard.Rules{Paths: []guard.Path{{Path: w.dir, Writable: true}, {Path: "/dev", Writable: true}}}, w.log, func() *os.File { return nil })
	if err != nil {
		w.t.Fatal(err)
	}
	n.guard = g
	w.t.Cleanup(func() { _ = g.Close(); n.pin.Unpin() })
	return n
}

// TestAllowIsUseful checks the proposed option for each refused write.
func TestAllowIsUseful(t *testing.T) {
	w := newWorld(t, nil, nil)
	base := filepath.Dir(w.dir)
	for dir, want := range map[string]string{"/lib": "/lib", "/.cache/uv/a/b": "/.cache/uv", "/.cache": "/.cache", "/it's": "/it's"} {
		mkdir(t, base+dir)
		w.log = refusal.New(refusal.Options{})
		n := newWorldWithLog(w)
		n.call("openat", unix.AT_FDCWD, base+dir+"/f", creating)
		list, _ := n.log.List()
		want = base + want
		if strings.Contains(want, "'") {
			want = "'" + strings.ReplaceAll(want, "'", `'\''`) + "'"
		}
		if len(list) != 1 || list[0].Allow != "--write "+want {
			t.Errorf("%s: %+v, want %s", dir, list, want)
		}
	}
}

func TestDeniedCalls(t *testing.T) {
	w := newWorld(t, nil, nil)
	for name, want := range map[string]string{"ptrace": "syscall ptrace", "io_uring_setup": "syscall io_uring_setup (minor)"} {
		w.log = refusal.New(refusal.Options{})
		n := newWorldWithLog(w)
		got := n.guard.Answer(seccomp.Call{PID: os.Getpid(), Name: name, Denied: unix.EPERM})
		if got.Errno != unix.EPERM || strings.Join(n.refused(), "") != want {
			t.Errorf("%s: %+v, %v", name, got, n.refused())
		}
	}
	list, _ := w.log.List()
	if len(list) != 1 || list[0].PID != os.Getpid() || list[0].Program == "" {
		t.Errorf("who it was: %+v", list)
	}
}

func BenchmarkPlainOpen(b *testing.B) {
	dir := b.TempDir()
	root, err := os.Open("/")
	if err != nil {
		b.Fatal(err)
	}
	defer root.Close()
	g, err := guard.New(guard.Rules{Paths: []guard.Path{{Path: dir, Writable: true}}, Protected: protectedNames(dir)}, refusal.New(refusal.Options{}), func() *os.File { return root })
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close()
	for name, file := range map[string]string{"absolute": dir + "/sub.o", "relative": "sub.o", "protected": dir + "/.mcp.json"} {
		b.Run(name, func(b *testing.B) {
			b.Chdir(dir)
			text := append([]byte(file), 0)
			var pin runtime.Pinner
			pin.Pin(&text[0])
			defer pin.Unpin()
			for b.Loop() {
				g.Answer(seccomp.Call{PID: os.Getpid(), Name: "openat", Args: [6]uint64{uint64(0xffffff9c), uint64(uintptr(unsafe.Pointer(&text[0]))), creating}})
			}
		})
	}
}

func BenchmarkNew(b *testing.B) {
	dir := b.TempDir()
	for i := range 100 {
		if err := os.WriteFile(dir+"/"+strings.Repeat("f", i+1), nil, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	if err := os.MkdirAll(dir+"/.git/objects", 0o755); err != nil {
		b.Fatal(err)
	}
	p := protectedNames(dir)
	for i := range 100 {
		p = append(p, guard.Protected{Dir: dir, Pattern: ".name" + strings.Repeat("x", i), Deep: true})
	}
	for b.Loop() {
		g, err := guard.New(guard.Rules{Paths: []guard.Path{{Path: dir, Writable: true}}, Protected: p}, refusal.New(refusal.Options{}), func() *os.File { return nil })
		if err != nil {
			b.Fatal(err)
		}
		_ = g.Close()
	}
}

// TestManyGuards uses up this machine's inotify limits. The names must still be watched.
func TestManyGuards(t *testing.T) {
	if testing.Short() {
		testenv.Need(t, "time", errors.New("-short"))
	}
	dir := t.TempDir() // a user has 128 by default
	var guards []*guard.Guard
	for range 200 {
		w := &world{t: t, dir: dir, log: refusal.New(refusal.Options{})}
		g, err := guard.New(guard.Rules{Paths: []guard.Path{{Path: dir, Writable: true}}, Protected: protectedNames(dir)}, w.log, func() *os.File { return nil })
		if err != nil {
			t.Fatal(err)
		}
		w.guard = g
		w.call("mkdir", dir+"/x")
		w.pin.Unpin()
		guards = append(guards, g)
	}
	write(t, dir+"/.mcp.json")
	testenv.Eventually(t, "the file goes", func() bool { _, err := os.Lstat(dir + "/.mcp.json"); return err != nil })
	for _, g := range guards {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
}
