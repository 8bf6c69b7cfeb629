//go:build linux

package guard_test

import (
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/box/guard"
)

// sockaddr returns the address of a Unix socket.
func sockaddr(name string) []byte {
	return append(binary.NativeEndian.AppendUint16(nil, unix.AF_UNIX), name...)
}

// sock makes a socket. It is closed when the test ends.
func sock(t *testing.T, domain, kind int) int {
	t.Helper()
	fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// serve listens and accepts.
func serve(t *testing.T, name string) {
	t.Helper()
	mkdir(t, filepath.Dir(name))
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
}

// socketWorld returns a world with sockets of all kinds.
func socketWorld(t *testing.T) (w *world, base string) {
	w = newWorld(t, func(dir string) {
		base = filepath.Dir(dir)
		serve(t, dir+"/host.sock")
		serve(t, base+"/agent")
		serve(t, base+"/allowed")
		serve(t, base+"/tmp/own")
		write(t, dir+"/file")
		_ = os.Symlink(base+"/agent", dir+"/link")
		_ = os.Symlink(base+"/allowed", dir+"/good")
		_ = os.Symlink("/proc/self/root"+base+"/agent", dir+"/magic")
	}, func(r *guard.Rules) {
		r.Sockets = []string{base + "/allowed"}
		r.Own = []string{base + "/tmp"}
	})
	serve(t, w.dir+"/made.sock")
	return w, base
}

func TestUnixSockets(t *testing.T) {
	w, base := socketWorld(t)
	t.Chdir(w.dir)
	for _, c := range []struct {
		name, addr string
		want       unix.Errno
	}{
		{"outside", base + "/agent", unix.EACCES},
		{"outside, relative", "../agent", unix.EACCES},
		{"outside, through a link", "link", unix.EACCES},
		{"outside, through a link of /proc", "magic", unix.ELOOP},
		{"outside, through /proc/self/root", "/proc/self/root" + base + "/agent", unix.EACCES},
		{"outside, through /proc/self/cwd", "/proc/self/cwd/../agent", unix.EACCES},
		{"older than the box in its directory", "host.sock", unix.EACCES},
		{"allowed", base + "/allowed", 0},
		{"allowed, through a link", "good", 0},
		{"made by the box", "made.sock", 0},
		{"in a directory of its own", base + "/tmp/own", 0},
		{"nothing there", "none", unix.ENOENT},
		{"a file", "file", unix.ECONNREFUSED},
		{"through a file", "file/x", unix.ENOTDIR},
		{"abstract", "\x00carrel-test-nobody", unix.EPERM},
		{"no name", "", unix.EINVAL},
		{"a long name", strings.Repeat("a", 200), unix.EINVAL},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr := sockaddr(c.addr)
			got := w.call("connect", sock(t, unix.AF_UNIX, unix.SOCK_STREAM), addr, len(addr))
			if got.Continue || got.Errno != c.want {
				t.Errorf("%+v, want %v", got, c.want)
			}
		})
	}
	for _, r := range w.refused() {
		if strings.Contains(r, "allowed") || strings.Contains(r, "own") || strings.Contains(r, "made") {
			t.Errorf("reported: %s", r)
		}
	}
	list, _ := w.log.List()
	if len(list) == 0 || list[0].What != base+"/agent" || list[0].Allow != "--socket "+base+"/agent" || list[0].Count < 4 {
		t.Errorf("reports: %+v", list)
	}
}

// TestConnectMeans checks that a connection made by the guard is like one made by the caller.
func TestConnectMeans(t *testing.T) {
	w, base := socketWorld(t)
	addr := sockaddr(base + "/allowed")
	fd := sock(t, unix.AF_UNIX, unix.SOCK_STREAM)
	if got := w.call("connect", fd, addr, len(addr)); got.Errno != 0 {
		t.Fatalf("%+v", got)
	}
	if got := w.call("connect", fd, addr, len(addr)); got.Errno != unix.EISCONN {
		t.Errorf("twice: %+v", got)
	}
	if tv, err := unix.GetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO); err != nil || tv.Nano() != 0 {
		t.Errorf("the timeout is left at %v, %v", tv, err)
	}
	wrong := sock(t, unix.AF_UNIX, unix.SOCK_SEQPACKET)
	if got := w.call("connect", wrong, addr, len(addr)); got.Errno != unix.EPROTOTYPE {
		t.Errorf("another type: %+v", got)
	}
	if got := w.call("connect", 12345, addr, len(addr)); got.Errno != unix.EBADF {
		t.Errorf("a bad descriptor: %+v", got)
	}
	file, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if got := w.call("connect", int(file.Fd()), addr, len(addr)); got.Errno != unix.ENOTSOCK {
		t.Errorf("no socket: %+v", got)
	}
	if got := w.call("connect", fd, 8, 20); got.Errno != unix.EFAULT {
		t.Errorf("bad memory: %+v", got)
	}
	for _, size := range []int{-1, 129, 1 << 30} {
		if got := w.call("connect", fd, addr, size); got.Errno != unix.EINVAL {
			t.Errorf("size %d: %+v", size, got)
		}
	}
	lie := []byte{byte(unix.AF_INET), 0, 0, 1, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}
	if got := w.call("connect", sock(t, unix.AF_UNIX, unix.SOCK_STREAM), lie, len(lie)); got.Continue || got.Errno == 0 {
		t.Errorf("another family: %+v", got)
	}
}

// TestFullBacklog connects to a socket with a full backlog. The guard must wait as the caller
// would.
func TestFullBacklog(t *testing.T) {
	w, base := socketWorld(t)
	name := base + "/tmp/full"
	l := sock(t, unix.AF_UNIX, unix.SOCK_STREAM)
	if err := unix.Bind(l, &unix.SockaddrUnix{Name: name}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(l, 0); err != nil {
		t.Fatal(err)
	}
	addr := sockaddr(name)
	for i := 0; ; i++ {
		got := w.call("connect", sock(t, unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK), addr, len(addr))
		if got.Errno == unix.EAGAIN && i > 0 {
			break
		}
		if got.Errno != 0 || i > 10 {
			t.Fatalf("connection %d: %+v", i, got)
		}
	}
	limited := sock(t, unix.AF_UNIX, unix.SOCK_STREAM)
	tv := unix.NsecToTimeval(int64(120 * time.Millisecond))
	if err := unix.SetsockoptTimeval(limited, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv); err != nil {
		t.Fatal(err)
	}
	if got := w.call("connect", limited, addr, len(addr)); got.Errno != unix.EAGAIN {
		t.Errorf("a timeout of the caller's: %+v", got)
	}
	if after, err := unix.GetsockoptTimeval(limited, unix.SOL_SOCKET, unix.SO_SNDTIMEO); err != nil || after.Nano() < int64(100*time.Millisecond) {
		t.Errorf("it was changed to %v, %v", after, err)
	}
	fd := sock(t, unix.AF_UNIX, unix.SOCK_STREAM)
	done := make(chan unix.Errno)
	go func() { done <- w.call("connect", fd, addr, len(addr)).Errno }()
	select {
	case errno := <-done:
		t.Fatalf("it did not wait: %v", errno)
	case <-time.After(150 * time.Millisecond):
	}
	got, _, err := unix.Accept(l)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(got)
	if errno := <-done; errno != 0 {
		t.Errorf("after room was made: %v", errno)
	}
}

func TestInternet(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	w := newWorld(t, nil, func(r *guard.Rules) { r.Closed, r.NoBind = "the network is closed", true })
	at := func(ip [4]byte, port uint16) []byte {
		a := append([]byte{byte(unix.AF_INET), 0}, byte(port>>8), byte(port))
		return append(append(a, ip[:]...), make([]byte, 8)...)
	}
	loop := [4]byte{127, 0, 0, 1}
	if got := w.call("connect", sock(t, unix.AF_INET, unix.SOCK_STREAM), at(loop, port), 16); got.Continue || got.Errno != 0 {
		t.Errorf("loopback: %+v", got)
	}
	nb := sock(t, unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK)
	if got := w.call("connect", nb, at(loop, port), 16); got.Errno != 0 && got.Errno != unix.EINPROGRESS {
		t.Errorf("loopback, without waiting: %+v", got)
	}
	_ = l.Close()
	if got := w.call("connect", sock(t, unix.AF_INET, unix.SOCK_STREAM), at(loop, port), 16); got.Errno != unix.ECONNREFUSED {
		t.Errorf("nobody there: %+v", got)
	}
	s := sock(t, unix.AF_INET, unix.SOCK_STREAM)
	if got := w.call("bind", s, at(loop, 0), 16); got.Errno != unix.EACCES {
		t.Errorf("bind: %+v", got)
	}
	if got := w.call("bind", sock(t, unix.AF_INET, unix.SOCK_DGRAM), at(loop, 0), 16); !got.Continue {
		t.Errorf("bind to send from: %+v", got)
	}
	name := sockaddr(w.dir + "/.mcp.json")
	if got := w.call("bind", sock(t, unix.AF_UNIX, unix.SOCK_STREAM), name, len(name)); got.Errno != unix.EACCES {
		t.Errorf("bind at a protected name: %+v", got)
	}
	if r := strings.Join(w.refused(), ", "); r != "bind 127.0.0.1:0, write .mcp.json" {
		t.Errorf("refused: %s", r)
	}
}
