package seccomp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/reexec"
)

// TestMain: the test binary starts itself again as a child with a filter. The child plays one of
// the parts in children.
func TestMain(m *testing.M) {
	if reexec.Run(reexec.Parts{"carrel-filtered": filtered, "carrel-played": played}) {
		return
	}
	os.Exit(m.Run())
}

// filtered installs the filter in its second argument on its thread, hands the listener out on
// descriptor 3, and executes the part.
func filtered() {
	runtime.LockOSThread()
	var f Filter
	if err := json.Unmarshal([]byte(os.Args[2]), &f); err != nil {
		panic(err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	l, err := Install(f)
	if err != nil {
		fmt.Println("install:", err)
		os.Exit(3)
	}
	var rights []byte
	if l != nil {
		rights = unix.UnixRights(int(l.Fd()))
	}
	if err := unix.Sendmsg(3, []byte("x"), rights, nil, 0); err != nil {
		panic(err)
	}
	_ = unix.Close(3)
	argv := append([]string{"carrel-played"}, os.Args[1:]...)
	if err := unix.Exec("/proc/self/exe", argv, os.Environ()); err != nil {
		panic(err)
	}
}

// children are the parts that a filtered child can play. They print their results.
var children = map[string]func(args []string){}

func played() { children[os.Args[1]](os.Args[3:]) }

// child is a process with a filter.
type child struct {
	*exec.Cmd
	out      bytes.Buffer
	listener *os.File
	in       io.WriteCloser
}

// start starts a part under f.
func start(t testing.TB, f Filter, part string, args ...string) *child {
	t.Helper()
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	c := &child{Cmd: exec.Command("/proc/self/exe")}
	c.Args = append([]string{"carrel-filtered", part, string(text)}, args...)
	c.Stdout, c.Stderr = &c.out, &c.out
	c.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	if c.in, err = c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "theirs")
	defer unix.Close(fds[0])
	c.ExtraFiles = []*os.File{theirs}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	oob := make([]byte, unix.CmsgSpace(4))
	n, on, _, _, err := unix.Recvmsg(fds[0], make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil || n == 0 {
		_ = c.Wait()
		t.Fatalf("no filter: %v %s", err, c.out.String())
	}
	if on > 0 {
		m, err := unix.ParseSocketControlMessage(oob[:on])
		if err != nil {
			t.Fatal(err)
		}
		got, err := unix.ParseUnixRights(&m[0])
		if err != nil {
			t.Fatal(err)
		}
		c.listener = os.NewFile(uintptr(got[0]), "listener")
		t.Cleanup(func() { _ = c.listener.Close() })
	}
	return c
}

// serve answers calls until the test ends.
func (c *child) serve(t testing.TB, f Filter, handle func(Call) Answer) *Listener {
	t.Helper()
	if c.listener == nil {
		t.Fatal("no listener")
	}
	l := Listen(c.listener, f)
	done := make(chan error, 1)
	go func() { done <- l.Serve(context.Background(), handle) }()
	t.Cleanup(func() {
		_ = l.Close()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return l
}

// finish waits for the child and returns what it printed.
func (c *child) finish(t testing.TB) string {
	t.Helper()
	_ = c.in.Close()
	if err := c.Wait(); err != nil {
		t.Fatalf("child: %v\n%s", err, c.out.String())
	}
	return c.out.String()
}

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

func ptr[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }
