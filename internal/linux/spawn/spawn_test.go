//go:build linux

package spawn

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/proc"
	"github.com/carrel-dev/carrel/internal/reexec"
)

// child is a part of the test's program. It reports its identity on descriptor 3, and ends with
// status 7.
const child = "spawn-test-child"

func TestMain(m *testing.M) {
	leaveOpen()
	if reexec.Run(Parts(), reexec.Parts{child: tell}) {
		return
	}
	os.Exit(m.Run())
}

// leaveOpen opens a file without close-on-exec, as a careless package might do. It also notes
// whether it inherited such a file.
func leaveOpen() {
	const number = 40
	_, err := unix.FcntlInt(number, unix.F_GETFD, 0)
	inherited = err == nil
	if err := unix.Dup2(0, number); err != nil {
		panic(err)
	}
}

var inherited bool

func tell() {
	leaked := 0
	open, _ := os.ReadDir("/proc/self/fd")
	for _, e := range open {
		if to, _ := os.Readlink("/proc/self/fd/" + e.Name()); strings.HasPrefix(to, "socket:") || strings.HasSuffix(to, "id_map") {
			leaked++
		}
	}
	if inherited {
		leaked++
	}
	out := os.NewFile(3, "out")
	_, _ = out.WriteString(strings.Join([]string{strconv.Itoa(os.Getpid()), strconv.Itoa(os.Getuid()), strings.Join(os.Args, ","),
		strings.Join(os.Environ(), ","), strconv.Itoa(leaked)}, " "))
	_ = out.Close()
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(7)
}

// newSpawner starts a spawner. It is closed when the test ends.
func newSpawner(t *testing.T) *Spawner {
	t.Helper()
	s, err := Start(exec.Command("/proc/self/exe"), "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// nobody returns a request for a process in namespaces of its own, like a sentry.
func nobody() Request {
	return Request{Args: []string{child, "x"}, Env: []string{"A=b"}, Dir: "/", Attr: syscall.SysProcAttr{
		Setsid:      true,
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWPID,
		Credential:  &syscall.Credential{Uid: 65534, Gid: 65534, NoSetGroups: os.Geteuid() != 0},
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 65534, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 65534, HostID: os.Getegid(), Size: 1}},

		GidMappingsEnableSetgroups: os.Geteuid() == 0,
	}}
}

// begin starts a child. It returns the child's report about itself, and the other end of its
// standard input.
func begin(t *testing.T, s *Spawner, r Request) (pid int, pidfd *os.File, said string, stdin *os.File) {
	t.Helper()
	in, stdin, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	pid, pidfd, err = s.Process(r, []*os.File{in, os.Stderr, os.Stderr, w})
	in.Close()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(out)
	out.Close()
	if err != nil {
		t.Fatal(err)
	}
	return pid, pidfd, string(b), stdin
}

// TestTheCallersChild starts processes in namespaces, several at once, and waits for them as their
// parent.
func TestTheCallersChild(t *testing.T) {
	s := newSpawner(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			pid, pidfd, said, stdin := begin(t, s, nobody())
			defer pidfd.Close()
			if want := "1 65534 " + child + ",x A=b 0"; said != want {
				t.Errorf("it says %q, want %q", said, want)
			}
			stdin.Close()
			if !proc.Ended(int(pidfd.Fd()), 30_000) {
				t.Fatal("it does not end")
			}
			if got := proc.Reap(pidfd, pid); got != "exit status 7" {
				t.Errorf("its end: %q", got)
			}
		})
	}
	wg.Wait()
}

// TestOutlivesTheSpawner closes the spawner. The processes that it started must live on, and it
// must be gone.
func TestOutlivesTheSpawner(t *testing.T) {
	s := newSpawner(t)
	pid, pidfd, _, stdin := begin(t, s, nobody())
	defer pidfd.Close()
	spawner := s.cmd.Process.Pid
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(spawner, 0); err != syscall.ESRCH {
		t.Errorf("the spawner: %v", err)
	}
	if proc.Ended(int(pidfd.Fd()), 50) {
		t.Error("its child ended with it")
	}
	if _, _, err := s.Process(nobody(), nil); !errors.Is(err, ErrGone) {
		t.Errorf("a closed one answers %v", err)
	}
	stdin.Close()
	if !proc.Ended(int(pidfd.Fd()), 30_000) {
		t.Error("it does not end")
	}
	proc.Reap(pidfd, pid)
}

// TestEndsWithItsParent closes the socket without Close, as a kill -9 of the parent does.
func TestEndsWithItsParent(t *testing.T) {
	s := newSpawner(t)
	s.mu.Lock()
	s.conn.Close()
	s.mu.Unlock()
	ended := make(chan error, 1)
	go func() { ended <- s.cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it lives on")
	}
	s.mu.Lock()
	s.conn = nil
	s.mu.Unlock()
}

// TestFailureIsTheLast sends a request that can't be carried out. It must be the spawner's last.
func TestFailureIsTheLast(t *testing.T) {
	s := newSpawner(t)
	r := nobody()
	r.Dir = "/nowhere"
	_, _, err := s.Process(r, nil)
	if !errors.Is(err, ErrGone) || !errors.Is(err, syscall.ENOENT) {
		t.Errorf("%v", err)
	}
	if _, _, err := s.Process(nobody(), nil); !errors.Is(err, ErrGone) {
		t.Errorf("then %v", err)
	}
}

// TestKilledSpawner kills the spawner. The next call must notice it.
func TestKilledSpawner(t *testing.T) {
	s := newSpawner(t)
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Process(nobody(), nil); !errors.Is(err, ErrGone) {
		t.Errorf("%v", err)
	}
}
