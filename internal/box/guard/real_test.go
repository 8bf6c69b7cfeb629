//go:build linux

package guard_test

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/box"
	"github.com/carrel-dev/carrel/internal/box/guard"
	"github.com/carrel-dev/carrel/internal/linux/seccomp"
	"github.com/carrel-dev/carrel/internal/reexec"
	"github.com/carrel-dev/carrel/internal/refusal"
	"github.com/carrel-dev/carrel/internal/testenv"
)

func TestMain(m *testing.M) {
	if reexec.Run(box.Parts(), parts) {
		return
	}
	os.Exit(m.Run())
}

// stranger is the uid of an unprivileged user. No account has it.
const stranger = 54_871

// TestAsStranger runs the other tests as an unprivileged user.
func TestAsStranger(t *testing.T) {
	if os.Getuid() != 0 {
		testenv.Need(t, "root", errors.New("not root: the other tests run as an ordinary user already"))
	}
	dir, err := os.MkdirTemp("", "guard-stranger-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	binary := filepath.Join(dir, "guard.test")
	copyFile(t, "/proc/self/exe", binary)
	if err := os.Mkdir(dir+"/tmp", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{dir, dir + "/tmp"} {
		if err := os.Chown(name, stranger, stranger); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"-test.skip=^TestAsStranger$", "-test.timeout=120s"}
	if testing.Short() {
		args = append(args, "-test.short", "-test.run=Sockets|Races|Protected|Fresh|Reports")
	}
	cmd := exec.Command(binary, args...)
	cmd.Dir = dir + "/tmp"
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir + "/tmp", "TMPDIR=" + dir + "/tmp", "CARREL_REQUIRE=" + os.Getenv("CARREL_REQUIRE")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o755); err != nil {
		t.Fatal(err)
	}
}

// boxed runs a command in a box with a guard for a world's directory, and returns its output.
func boxed(t *testing.T, w *world, args ...string) string { return boxedWith(t, w, nil, nil, args...) }

// boxedWith is boxed with a standard input and other mounts.
func boxedWith(t *testing.T, w *world, stdin *os.File, mounts []box.Mount, args ...string) string {
	t.Helper()
	if err := box.Probe(t.Context()); err != nil {
		testenv.Need(t, "ns", err)
	}
	r, wr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	spec := box.Spec{
		Args: args, Env: append(os.Environ(), "PATH="+filepath.Dir(w.dir)+":"+os.Getenv("PATH"), "HOME="+w.dir, "GIT_CONFIG_GLOBAL=/dev/null", "npm_config_cache="+w.dir+"/.cache", "npm_config_audit=false", "npm_config_fund=false", "npm_config_update_notifier=false", "npm_config_offline=true"),
		Dir: w.dir, Root: box.Root{Host: true}, NoTmp: true, Network: box.Closed,
		Mounts:  append([]box.Mount{{Kind: box.Writable, Source: w.dir, Target: w.dir}}, mounts...),
		Seccomp: seccomp.Filter{Deny: seccomp.Dangerous(), Namespaces: true, UnixDatagram: true, Watch: true, WatchConnect: true, WatchBind: true, WatchWrites: true},
	}
	for _, name := range []string{".git/config", "nested/.git/config"} {
		if _, err := os.Lstat(w.path(name)); err == nil {
			spec.Mounts = append(spec.Mounts, box.Mount{Kind: box.ReadOnly, Target: w.path(name)})
		}
	}
	b, err := box.Start(t.Context(), spec, box.Options{Stdin: stdin, Stdout: wr, Stderr: wr, Watch: func(b *box.Box, c seccomp.Call) seccomp.Answer {
		w.box.Store(b)
		return w.guard.Answer(c)
	}})
	_ = wr.Close()
	if err != nil {
		t.Fatal(err)
	}
	out, _ := io.ReadAll(r)
	exit, err := b.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if exit.Code != 0 || exit.Signal != 0 {
		t.Errorf("%v: exit %+v\n%s", args, exit, out)
	}
	return string(out)
}

// realWorld returns a world that contains the test binary. Its guard knows the box's root.
func realWorld(t *testing.T, prepare func(dir string)) *world {
	var w *world
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w = &world{t: t, dir: filepath.Join(base, "work"), state: filepath.Join(base, "state"), log: refusal.New(refusal.Options{})}
	mkdir(t, w.dir)
	copyFile(t, "/proc/self/exe", base+"/guard-test")
	if prepare != nil {
		prepare(w.dir)
	}
	time.Sleep(20 * time.Millisecond)
	w.remake(nil)
	t.Cleanup(func() { _ = w.guard.Close() })
	return w
}

// remake makes the guard of a real world again, with other rules.
func (w *world) remake(change func(*guard.Rules)) {
	if w.guard != nil {
		_ = w.guard.Close()
	}
	r := guard.Rules{
		Paths:     []guard.Path{{Path: w.dir, Writable: true}, {Path: "/dev", Writable: true}, {Path: "/proc", Writable: true}},
		Protected: protectedNames(w.dir), Roots: []string{w.dir}, Quarantine: filepath.Join(w.state, "quarantine"), Closed: "the network is closed",
		Own: []string{"/run", "/dev/shm"}, Sealed: true,
	}
	for _, name := range []string{".git/config", "nested/.git/config"} {
		if _, err := os.Lstat(w.path(name)); err == nil {
			r.Paths = append(r.Paths, guard.Path{Path: w.path(name), Rule: "built-in: git configuration"})
		}
	}
	if change != nil {
		change(&r)
	}
	g, err := guard.New(r, w.log, func() *os.File {
		if b := w.box.Load(); b != nil {
			return b.Root()
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.guard = g
}

// part returns the command that runs this binary inside, in one of its parts.
func (w *world) part(args ...string) []string {
	return append([]string{"guard-test"}, args...)
}

// outside starts a server beside the box's directory. It counts its connections.
func outside(t *testing.T, name string) *atomic.Int64 {
	t.Helper()
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	var came atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			came.Add(1)
			_, _ = c.Write([]byte("outside"))
			_ = c.Close()
		}
	}()
	return &came
}

func TestSocketsInABox(t *testing.T) {
	var old *atomic.Int64
	w := realWorld(t, func(dir string) { old = outside(t, dir+"/old.sock") })
	young := outside(t, w.dir+"/young.sock")
	far := outside(t, filepath.Dir(w.dir)+"/far.sock")
	out := boxedWith(t, w, hostSocket(t), nil, w.part("sockets")...)
	for _, want := range []string{
		"old.sock: permission denied", "young.sock: connection refused", "../far.sock: permission denied",
		"own.sock: inside", "dir/renamed.sock: inside", "@own: inside", "stale.sock: connection refused", "tcp: inside",
		"192.0.2.1:80: network is unreachable", "linked: permission denied", "disconnect: permission denied",
	} {
		if !strings.Contains(out, want+"\n") {
			t.Errorf("%q is not in what it wrote:\n%s", want, out)
		}
	}
	if n := old.Load() + young.Load() + far.Load(); n != 0 {
		t.Errorf("%d connections reached servers outside:\n%s", n, out)
	}
	if r := w.refused(); !slices.Contains(r, "connect 192.0.2.1:80") || !slices.Contains(r, "connect old.sock") {
		t.Errorf("reports: %v", r)
	}
	t.Log(out)
}

// hostSocket returns a TCP connection of this machine.
func hostSocket(t *testing.T) *os.File {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f, err := c.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestAllowedElsewhere connects to a socket that the rules allow. The box has an empty directory in
// its place.
func TestAllowedElsewhere(t *testing.T) {
	w := realWorld(t, func(dir string) { mkdir(t, filepath.Dir(dir)+"/run") })
	run := filepath.Dir(w.dir) + "/run"
	allowed, other := outside(t, run+"/allowed.sock"), outside(t, run+"/other.sock")
	w.remake(func(r *guard.Rules) {
		r.Own = append(r.Own, run)
		r.Sockets = []string{run + "/allowed.sock"}
	})
	out := boxedWith(t, w, nil, []box.Mount{{Kind: box.Tmpfs, Target: run}}, w.part("dial", "../run/allowed.sock", run+"/other.sock", run+"/none.sock")...)
	want := "../run/allowed.sock: outside\n" + run + "/other.sock: no such file or directory\n" + run + "/none.sock: no such file or directory\n"
	if out != want || allowed.Load() != 1 || other.Load() != 0 {
		t.Errorf("%s\n%d and %d connections", out, allowed.Load(), other.Load())
	}
	if r := strings.Join(w.refused(), ", "); r != "connect "+run+"/other.sock" {
		t.Errorf("refused: %s", r)
	}
}

// TestInterruptedConnect interrupts a waiting connect with a signal for which the program has a
// handler.
func TestInterruptedConnect(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		testenv.Need(t, "python3", err)
	}
	w := realWorld(t, nil)
	out := boxed(t, w, "python3", "-c", `
import signal, socket
class Rang(Exception): pass
def ring(*a): raise Rang()
signal.signal(signal.SIGALRM, ring)
l = socket.socket(socket.AF_UNIX); l.bind("l"); l.listen(0)
held = []
signal.setitimer(signal.ITIMER_REAL, 0.3)
try:
    while True:
        c = socket.socket(socket.AF_UNIX); c.connect("l"); held.append(c)
except Rang: print("rang")
print(len(held) > 0, l.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
`)
	if out != "rang\nTrue 0\n" {
		t.Error(out)
	}
}

// TestRaces runs a program whose threads change the memory that the guard checks.
func TestRaces(t *testing.T) {
	seconds := "2"
	if testing.Short() {
		seconds = "1"
	}
	w := realWorld(t, func(dir string) {
		write(t, dir+"/.git/config", dir+"/nested/.git/config", dir+"/evil/hooks/post-commit")
		mkdir(t, dir+"/.claude", dir+"/.git/modules")
	})
	config, err := os.Stat(w.path(".git/config"))
	if err != nil {
		t.Fatal(err)
	}
	far := outside(t, filepath.Dir(w.dir)+"/far.sock")
	out := boxed(t, w, w.part("race", seconds)...)
	if err := w.guard.Close(); err != nil {
		t.Error(err)
	}
	if n := far.Load(); n != 0 || strings.Contains(out, "outside") {
		t.Errorf("%d connections got out", n)
	}
	for _, name := range []string{".mcp.json", ".vscode", ".git/hooks", ".claude/agents", "nested/.mcp.json", "nested/.git/hooks", ".git/modules/m/hooks"} {
		if _, err := os.Lstat(w.path(name)); err == nil {
			t.Errorf("%s is there", name)
		}
	}
	for _, name := range []string{".git", "nested", "nested/.git", ".git/config", "nested/.git/config"} {
		if st, err := os.Lstat(w.path(name)); err != nil || st.Mode()&os.ModeSymlink != 0 {
			t.Errorf("%s is gone or a link: %v", name, err)
		}
	}
	if now, err := os.Stat(w.path(".git/config")); err != nil || !os.SameFile(now, config) {
		t.Errorf(".git/config is another file: %v", err)
	}
	t.Log(out)
	list, _ := w.log.List()
	for _, r := range list {
		t.Log(r.Operation, r.What, r.Count, r.Reason)
	}
}

func TestGit(t *testing.T) {
	git(t)
	w := realWorld(t, func(dir string) {
		for _, line := range []string{"git init -q origin", "cd origin && mkdir .vscode && touch .mcp.json .vscode/settings.json a && git add -A && git -c user.name=a -c user.email=a@example.com commit -qm a"} {
			cmd := exec.Command("sh", "-ec", line)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "HOME="+dir, "GIT_CONFIG_GLOBAL=/dev/null")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
	})
	out := boxed(t, w, "/bin/sh", "-ec", `
		git clone -q ./origin clone
		test -f clone/.vscode/settings.json
		git init -q .
		git init -q fresh
		cd clone
		git config user.name a; git config user.email a@example.com
		echo b > b; git add b; git commit -qm b
		git checkout -qb other; git status --short
		mkdir ../origin/.git/hooks/x 2>/dev/null || true
		touch ../origin/.npmrc && exit 1
		touch ../.npmrc && exit 1
		echo done`)
	if !strings.HasSuffix(out, "done\n") {
		t.Error(out)
	}
	if r := w.refused(); !slices.Contains(r, "write .npmrc") || !slices.Contains(r, "write origin/.npmrc") || len(r) > 3 {
		t.Errorf("refused: %v", r)
	}
}

// TestFreshRepositoryIsDisarmed makes repositories in a box that would run a program when git is
// used in them.
func TestFreshRepositoryIsDisarmed(t *testing.T) {
	git(t)
	w := realWorld(t, nil)
	boxed(t, w, "/bin/sh", "-ec", `
		for d in . sub; do
			git init -q $d
			cd $d
			git config core.fsmonitor "touch $PWD/ran; false"
			mkdir -p .git/hooks
			printf '#!/bin/sh\ntouch ran\n' > .git/hooks/post-index-change; chmod +x .git/hooks/post-index-change
			cd - >/dev/null
		done
		git init -q good; cd good; git remote add o https://example.com/x; git config user.name a`)
	if err := w.guard.Close(); err != nil {
		t.Error(err)
	}
	for _, dir := range []string{".", "sub", "good"} {
		cmd := exec.Command("git", "status")
		cmd.Dir = w.path(dir)
		cmd.Env = append(os.Environ(), "HOME="+w.dir, "GIT_CONFIG_GLOBAL=/dev/null")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		if _, err := os.Stat(w.path(dir) + "/ran"); err == nil {
			t.Errorf("git ran a program in %s", dir)
		}
	}
	if data, err := os.ReadFile(w.path("good/.git/config")); err != nil || !strings.Contains(string(data), "example.com") {
		t.Errorf("a good repository: %s, %v", data, err)
	}
	if r := w.refused(); !slices.Contains(r, "write .git/config") || !slices.Contains(r, "write sub/.git/hooks/post-index-change") {
		t.Errorf("reports: %v", r)
	}
}

func git(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		testenv.Need(t, "git", err)
	}
}

func TestNpm(t *testing.T) {
	if testing.Short() {
		testenv.Need(t, "time", errors.New("-short"))
	}
	if _, err := exec.LookPath("npm"); err != nil {
		testenv.Need(t, "npm", err)
	}
	w := realWorld(t, func(dir string) {
		write(t, dir+"/package/.vscode/settings.json", dir+"/package/.mcp.json")
		for name, text := range map[string]string{
			"package/package.json": `{"name":"p","version":"1.0.0"}`,
			"package.json":         `{"name":"top","version":"1.0.0","dependencies":{"p":"file:p-1.0.0.tgz"}}`,
		} {
			if err := os.WriteFile(dir+"/"+name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := exec.Command("tar", "-C", dir, "-czf", dir+"/p-1.0.0.tgz", "package").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	})
	out := boxed(t, w, "/bin/sh", "-ec", `npm install >npm.out 2>&1 || { cat npm.out; exit 1; }; ls -a node_modules/p`)
	for _, want := range []string{".vscode", ".mcp.json"} {
		if !strings.Contains(out, want) {
			t.Errorf("the package came without %s: %s", want, out)
		}
	}
	t.Log(w.refused())
}

// parts are the parts that this binary plays inside of a box.
var parts = reexec.Parts{"guard-test sockets": sockets, "guard-test dial": dial, "guard-test race": race}
