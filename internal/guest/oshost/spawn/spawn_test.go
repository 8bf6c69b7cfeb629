package spawn_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/guest/oshost/spawn"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// run starts a program, and returns its output and exit status.
func run(t *testing.T, path string, argv []string, attr spawn.Attr) (string, syscall.WaitStatus, error) {
	t.Helper()
	var p [2]int
	if err := syscall.Pipe2(p[:], syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	null, err := syscall.Open(os.DevNull, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := os.NewFile(uintptr(p[0]), "out")
	defer r.Close()
	attr.Files = [3]uintptr{uintptr(null), uintptr(p[1]), uintptr(p[1])}
	pid, err := spawn.Start(path, argv, &attr)
	_ = syscall.Close(p[1])
	_ = syscall.Close(null)
	if err != nil {
		return "", 0, err
	}
	out, err := io.ReadAll(r)
	if err != nil {
		t.Error(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil {
		t.Error(err)
	}
	return string(out), status, nil
}

// both runs a test twice: with our way to start programs, if the kernel supports it, and with
// package syscall's.
func both(t *testing.T, test func(t *testing.T)) {
	was := spawn.Refused.Load()
	t.Cleanup(func() { spawn.Refused.Store(was) })
	for _, r := range []bool{false, true} {
		spawn.Refused.Store(r)
		t.Run(map[bool]string{false: "spawn", true: "syscall"}[r], test)
		if !r && spawn.Refused.Load() {
			t.Log("this kernel has no clone3, or one that can't clear handlers")
		}
	}
}

func TestStart(t *testing.T) {
	if err := unix.CloseRange(3, 1<<20, unix.CLOSE_RANGE_CLOEXEC); err != nil { // descriptors that the test's own parent left open
		t.Fatal(err)
	}
	both(t, func(t *testing.T) {
		dir := t.TempDir()
		out, status, err := run(t, "/bin/sh", []string{"sh", "-c", `pwd; echo "$A" "$0" "$1"; ls /proc/self/fd | tr "\n" " "; exit 3`, "x", "y z"},
			spawn.Attr{Dir: dir, Env: []string{"A=b c", "PATH=/bin:/usr/bin"}})
		// ls also has the listed directory open.
		if want := dir + "\nb c x y z\n0 1 2 3 "; err != nil || out != want || status.ExitStatus() != 3 {
			t.Errorf("%q, exit %d, %v; want %q", out, status.ExitStatus(), err, want)
		}
	})
}

// TestStartClean shows that a child has none of our signal handlers and masks, and has its own
// session.
func TestStartClean(t *testing.T) {
	both(t, func(t *testing.T) {
		out, _, err := run(t, "/bin/sh", []string{"sh", "-c", `cat /proc/self/status | grep -E "^Sig(Blk|Cgt)"; set -- $(cat /proc/$$/stat); test $1 = $6 && echo leader`}, spawn.Attr{Env: []string{"PATH=/bin:/usr/bin"}})
		if want := "SigBlk:\t0000000000000000\nSigCgt:\t0000000000000000\nleader\n"; err != nil || out != want {
			t.Errorf("%q, %v; want %q", out, err, want)
		}
	})
}

func TestStartFails(t *testing.T) {
	both(t, func(t *testing.T) {
		text := t.TempDir() + "/text"
		if err := os.WriteFile(text, []byte("no program"), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			path string
			attr spawn.Attr
			want error
		}{
			{"/no/such", spawn.Attr{}, syscall.ENOENT},
			{"/", spawn.Attr{}, syscall.EACCES},
			{text, spawn.Attr{}, syscall.ENOEXEC},
			{"/bin/sh", spawn.Attr{Dir: "/no/such"}, syscall.ENOENT},
			{"/bin/sh", spawn.Attr{Dir: "\x00"}, syscall.EINVAL},
			{"/bin/sh\x00", spawn.Attr{}, syscall.EINVAL},
			{"/bin/sh", spawn.Attr{Env: []string{"A=\x00"}}, syscall.EINVAL},
			{"/bin/sh", spawn.Attr{TTY: true}, syscall.ENOTTY},
		} {
			if _, _, err := run(t, c.path, []string{"sh"}, c.attr); !errors.Is(err, c.want) {
				t.Errorf("%q in %q: %v, want %v", c.path, c.attr.Dir, err, c.want)
			}
		}
		closed := t.TempDir()
		if err := os.Chmod(closed, 0o700); err != nil {
			t.Fatal(err)
		}
		if os.Geteuid() == 0 {
			nobody := &syscall.Credential{Uid: 65534, Gid: 65534}
			_, _, err := run(t, "/bin/sh", []string{"sh"}, spawn.Attr{Dir: closed, Credential: nobody})
			var at *fs.PathError
			if !errors.Is(err, syscall.EACCES) || !spawn.Refused.Load() && (!errors.As(err, &at) || at.Path != closed) {
				t.Errorf("a directory of another: %v", err)
			}
		}
		if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != syscall.ECHILD {
			t.Errorf("a child is left: %d, %v", pid, err)
		}
	})
}

func TestStartAs(t *testing.T) {
	if os.Geteuid() != 0 {
		testenv.Need(t, "root", errors.New("root, to become somebody else"))
	}
	both(t, func(t *testing.T) {
		for _, groups := range [][]uint32{{1234, 77}, nil} {
			out, _, err := run(t, "/bin/sh", []string{"sh", "-c", "id -u; id -g; id -G"},
				spawn.Attr{Env: []string{"PATH=/bin:/usr/bin"}, Credential: &syscall.Credential{Uid: 4321, Gid: 1234, Groups: groups}})
			want := "4321\n1234\n1234\n"
			if groups != nil {
				want = "4321\n1234\n1234 77\n"
			}
			if err != nil || out != want {
				t.Errorf("%q, %v; want %q", out, err, want)
			}
		}
	})
}

// TestStartLimit shows that a child gets the limit on open files that this process was given,
// although package syscall raised ours.
func TestStartLimit(t *testing.T) {
	if os.Getenv("SPAWN_LIMIT") == "1" {
		both(t, func(t *testing.T) {
			out, _, err := run(t, "/bin/sh", []string{"sh", "-c", "ulimit -Sn; ulimit -Hn"}, spawn.Attr{})
			fmt.Printf("limits %q %v\n", out, err)
		})
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", `ulimit -Sn 300; ulimit -Hn 500; exec "$0" -test.run 'TestStartLimit$'`, self)
	cmd.Env = append(os.Environ(), "SPAWN_LIMIT=1")
	out, err := cmd.CombinedOutput()
	if want := `limits "300\n500\n" <nil>`; err != nil || strings.Count(string(out), want) != 2 {
		t.Errorf("%s%v; want twice %s", out, err, want)
	}
}

// TestStartHammer starts many children at once, while the collector runs and stacks grow.
func TestStartHammer(t *testing.T) {
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				runtime.GC()
			}
		}
	})
	var starts sync.WaitGroup
	for i := range 8 {
		starts.Go(func() {
			for n := range 25 {
				arg := strings.Repeat(string(rune('a'+i)), 10+n*100)
				out, status, err := run(t, "/bin/echo", []string{"echo", arg}, spawn.Attr{Env: []string{"A=" + arg}})
				if err != nil || status != 0 || out != arg+"\n" {
					t.Errorf("%q, %v, %v; want %q", out, status, err, arg)
				}
				if _, _, err := run(t, "/no/such", []string{arg}, spawn.Attr{}); err != syscall.ENOENT {
					t.Error(err)
				}
			}
		})
	}
	starts.Wait()
	close(done)
	wg.Wait()
}
