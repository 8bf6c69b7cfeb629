//go:build linux

package box_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/box"
	"github.com/carrel-dev/carrel/internal/reexec"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// helpers are programs that the tests run in boxes. This binary plays them, by its first argument.
var helpers = map[string]func(){}

func TestMain(m *testing.M) {
	// Go's runtime opens its poller (a descriptor or two) with its first timer, which may be one of
	// the runtime's own. With this timer the stage always has the poller.
	defer time.AfterFunc(time.Hour, func() {}).Stop()
	if reexec.Run(box.Parts()) {
		return
	}
	if len(os.Args) > 1 {
		if f, ok := helpers[os.Args[1]]; ok {
			f()
			return
		}
	}
	os.Exit(m.Run())
}

// stranger is a user that runs the tests again. No account has this uid.
const stranger = 54321

// TestUnprivileged runs all other tests again as an ordinary user.
func TestUnprivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		return // this already is that run, or there can't be one
	}
	dir, err := os.MkdirTemp("", "carrel-box-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chown(dir, stranger, stranger)); err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.timeout=120s"}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	if testing.Verbose() {
		args = append(args, "-test.v")
	}
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	out, err := cmd.CombinedOutput()
	if err != nil || testing.Verbose() {
		t.Logf("as uid %d:\n%s", stranger, out)
	}
	if err != nil {
		t.Error(err)
	}
}

// need skips the test on hosts without boxes.
func need(t testing.TB) {
	t.Helper()
	testenv.Need(t, "namespaces", box.Probe(t.Context()))
}

// plain returns the Spec of an ordinary command.
func plain(args ...string) box.Spec {
	return box.Spec{Args: args, Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/nonexistent"}, Dir: "/", Root: box.Root{Host: true}, Network: box.Closed}
}

// shell is plain with a line for the shell.
func shell(line string) box.Spec { return plain("/bin/sh", "-c", line) }

// helper is plain with a helper. The helper is the test's own binary, bound to a file in /run.
func helper(t *testing.T, args ...string) box.Spec {
	t.Helper()
	self, err := filepath.EvalSymlinks("/proc/self/exe")
	if err != nil { // this user may not enter its directory
		self = copySelf(t)
	}
	s := plain(append([]string{"/run/helper"}, args...)...)
	s.Mounts = []box.Mount{{Kind: box.ReadOnly, Source: self, Target: "/run/helper"}}
	return s
}

func copySelf(t *testing.T) string {
	t.Helper()
	src, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	name := files(t) + "/helper"
	dst, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(dst, src)
	if err := errors.Join(err, dst.Close()); err != nil {
		t.Fatal(err)
	}
	return name
}

// output runs a command in a box and returns its output.
func output(t *testing.T, s box.Spec, o box.Options) (string, box.Exit) {
	t.Helper()
	need(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	o.Stdout, o.Stderr = w, w
	b, err := box.Start(t.Context(), s, o)
	_ = w.Close()
	if err != nil {
		t.Fatalf("%v (hint: %s)", err, carrel.HintOf(err))
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	exit, err := b.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return string(text), exit
}

// expect runs a shell line and checks its exact output.
func expect(t *testing.T, s box.Spec, want string) {
	t.Helper()
	out, exit := output(t, s, box.Options{})
	if out != want {
		t.Errorf("%q wrote %q (%+v), want %q", s.Args, out, exit, want)
	}
}

func TestRuns(t *testing.T) {
	for _, c := range []struct {
		name, line, out string
		code            int
		signal          syscall.Signal
	}{
		{"output", "echo a; echo b >&2", "a\nb\n", 0, 0},
		{"exit code", "exit 3", "", 3, 0},
		{"signal", "kill -TERM $$", "", 0, syscall.SIGTERM},
		{"hard signal", "kill -KILL $$", "", 0, syscall.SIGKILL},
		{"environment", "echo $HOME", "/nonexistent\n", 0, 0},
		{"working directory", "pwd", "/\n", 0, 0},
		{"user", `test "$(id -u)" = "$WANT" && echo same`, "", 0, 0},
		{"pids", "test $$ -lt 100 && test ! -d /proc/2000000 && echo own", "own\n", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := shell(c.line)
			if c.name == "user" {
				s.Env = append(s.Env, "WANT="+itoa(os.Geteuid()))
				c.out = "same\n"
			}
			out, exit := output(t, s, box.Options{})
			if out != c.out || exit.Code != c.code || exit.Signal != c.signal || exit.Limit != "" {
				t.Errorf("%q, %+v", out, exit)
			}
		})
	}
}

func TestStreams(t *testing.T) {
	need(t)
	t.Run("stdin", func(t *testing.T) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		go func() { _, _ = io.WriteString(w, "hello"); _ = w.Close() }()
		if out, _ := output(t, shell("cat"), box.Options{Stdin: r}); out != "hello" {
			t.Errorf("%q", out)
		}
	})
	t.Run("no stdin", func(t *testing.T) { expect(t, shell("cat; echo end"), "end\n") })
	t.Run("output ends with the command's own end of it", func(t *testing.T) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		b, err := box.Start(t.Context(), shell("echo x; exec >&- 2>&-; sleep 1000"), box.Options{Stdout: w})
		_ = w.Close()
		if err != nil {
			t.Fatal(err)
		}
		if text, _ := io.ReadAll(r); string(text) != "x\n" { // returns although the command sleeps
			t.Errorf("%q", text)
		}
		if err := b.Kill(); err != nil {
			t.Error(err)
		}
		if e, err := b.Wait(); err != nil || e.Signal != syscall.SIGKILL {
			t.Error(e, err)
		}
	})
}

func TestCommandsThatDoNotStart(t *testing.T) {
	need(t)
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, []byte{0x7f, 1, 2, 3}, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args string
		want error
	}{
		{"missing", "/nowhere/at/all", syscall.ENOENT},
		{"not along PATH", "no-such-program-here", syscall.ENOENT},
		{"not executable", "/etc/passwd", syscall.EACCES},
		{"a directory", "/etc", syscall.EACCES},
		{"no program", bad, syscall.ENOEXEC},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := plain(c.args)
			s.Mounts = []box.Mount{{Kind: box.ReadOnly, Source: dir, Target: dir}}
			_, err := box.Start(t.Context(), s, box.Options{})
			var path *fs.PathError
			if !errors.Is(err, c.want) || !errors.As(err, &path) {
				t.Errorf("got %v", err)
			}
		})
	}
	s := plain("true")
	s.Dir = "/nowhere/at/all"
	if _, err := box.Start(t.Context(), s, box.Options{}); err == nil || !strings.Contains(err.Error(), "working directory: chdir /nowhere/at/all") {
		t.Error(err)
	}
}

func TestInvalidSpecs(t *testing.T) {
	for name, change := range map[string]func(*box.Spec){
		"no command":          func(s *box.Spec) { s.Args = nil },
		"network":             func(s *box.Spec) { s.Network = "open" },
		"relative mount":      func(s *box.Spec) { s.Mounts = []box.Mount{{Kind: box.Writable, Target: "x"}} },
		"mount over the root": func(s *box.Spec) { s.Mounts = []box.Mount{{Kind: box.Tmpfs, Target: "/"}} },
		"unclean mount":       func(s *box.Spec) { s.Mounts = []box.Mount{{Kind: box.Writable, Target: "/a/../b"}} },
		"NUL":                 func(s *box.Spec) { s.Hidden = []box.Hidden{{Path: "/a\x00b"}} },
		"kind":                func(s *box.Spec) { s.Mounts = []box.Mount{{Kind: "rx", Target: "/x"}} },
		"ten thousand mounts": func(s *box.Spec) { s.Mounts = make([]box.Mount, 10_000) },
		"capability":          func(s *box.Spec) { s.Capabilities = []string{"CAP_EVERYTHING"} },
		"device elsewhere":    func(s *box.Spec) { s.Devices = []string{"/etc/passwd"} },
		"device by ..":        func(s *box.Spec) { s.Devices = []string{"/dev/../etc"} },
		"watched by nobody":   func(s *box.Spec) { s.Seccomp.WatchConnect = true },
		"publish without wall": func(s *box.Spec) {
			s.Network = box.Host
			s.Publish = []box.Publish{{Outside: "127.0.0.1:0", Inside: 1}}
		},
		"link without wall": func(s *box.Spec) { s.Light = true; s.Network = box.Wired },
	} {
		t.Run(name, func(t *testing.T) {
			s := plain("true")
			change(&s)
			if _, err := box.Start(t.Context(), s, box.Options{}); !errors.Is(err, carrel.Invalid) {
				t.Errorf("got %v", err)
			}
		})
	}
}
