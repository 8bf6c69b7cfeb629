//go:build linux

package box

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestConnectInterrupted goes on with a connection that a signal interrupted.
func TestConnectInterrupted(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	closed, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	for _, c := range []struct {
		to   net.Addr
		want error
	}{{l.Addr(), nil}, {closed.Addr(), unix.ECONNREFUSED}} {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		to := &unix.SockaddrInet4{Port: c.to.(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}}
		// A socket that does not wait is in the state that an interrupted one is in.
		if err := unix.Connect(fd, to); !errors.Is(err, unix.EINPROGRESS) {
			t.Fatalf("connect: %v", err)
		}
		if err := connected(fd, unix.EINTR); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.to, err, c.want)
		}
		_ = unix.Close(fd)
	}
	if err := connected(-1, unix.EACCES); !errors.Is(err, unix.EACCES) {
		t.Errorf("another error became %v", err)
	}
}
