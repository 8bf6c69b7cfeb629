package wire_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/linux/tap"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/internal/wire"
)

// insider is a sandbox for tests. It opens sockets inside.
type insider interface {
	dial(ctx context.Context, to string, port uint16) (net.Conn, error)
	listen(port uint16) net.Listener
	udp(to string, port uint16) net.Conn
}

// insideStack is a sandbox with gVisor's stack, at the other end of a socket.
type insideStack struct{ *guest }

func (s insideStack) dial(ctx context.Context, to string, port uint16) (net.Conn, error) {
	c, err := s.guest.dial(ctx, to, port)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (s insideStack) udp(to string, port uint16) net.Conn { return s.guest.udp(to, port) }

// namespace is a sandbox with this machine's kernel. A helper process inside makes sockets and
// passes them out.
type namespace struct {
	t    testing.TB
	cmd  *exec.Cmd
	link *os.File // until it is attached

	mu   sync.Mutex
	conn int // to the helper
}

// deviceVariable names the TAP device, for a test that runs as another user.
const deviceVariable = "CARREL_TEST_TAP"

// newNamespace starts a namespace. It ends with the test, or with end.
func newNamespace(t testing.TB, c tap.Config) *namespace {
	t.Helper()
	c.Device = os.Getenv(deviceVariable)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "helper")
	cmd := insideCommand("sockets")
	cmd.ExtraFiles = []*os.File{theirs}
	link, err := tap.Spawn(cmd, c)
	_ = theirs.Close()
	needNamespaces(t, err)
	n := &namespace{t: t, cmd: cmd, link: link, conn: fds[0]}
	t.Cleanup(func() {
		n.end()
		_ = n.link.Close()
		_ = unix.Close(n.conn)
	})
	return n
}

// needNamespaces handles an error of tap.Spawn.
func needNamespaces(t testing.TB, err error) {
	t.Helper()
	if carrel.KindOf(err) == carrel.Unsupported {
		testenv.Need(t, "ns", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// insideCommand runs this binary as one of insideParts.
func insideCommand(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = "inside"
	cmd.Stderr = os.Stderr
	return cmd
}

// end kills the first process of the namespace, and waits for it.
func (n *namespace) end() {
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait()
}

// dup returns a duplicate of the link's file.
func (n *namespace) dup() *os.File {
	n.t.Helper()
	fd, err := unix.FcntlInt(n.link.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		n.t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), "tap")
}

// wish is a request to the helper, and reply its answer. A socket may come with the reply.
type wish struct {
	Do, Network, Address string
}

type reply struct {
	Errno int
	Text  string
}

// ask sends a request to the helper and returns the socket that it makes, or nil.
func (n *namespace) ask(w wish) (*os.File, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	told, err := json.Marshal(w)
	if err == nil {
		err = unix.Send(n.conn, told, 0)
	}
	if err != nil {
		return nil, err
	}
	b, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	got, oobn, _, _, err := unix.Recvmsg(n.conn, b, oob, unix.MSG_CMSG_CLOEXEC)
	for err == unix.EINTR {
		got, oobn, _, _, err = unix.Recvmsg(n.conn, b, oob, unix.MSG_CMSG_CLOEXEC)
	}
	if err != nil {
		return nil, err
	}
	var r reply
	if err := json.Unmarshal(b[:got], &r); err != nil {
		return nil, fmt.Errorf("the helper said %q: %w", b[:got], err)
	}
	if r.Errno != 0 {
		return nil, os.NewSyscallError(w.Do, syscall.Errno(r.Errno))
	}
	if r.Text != "" {
		return nil, errors.New(r.Text)
	}
	if oobn == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fds[0]), "inside"), nil
}

func (n *namespace) dial(_ context.Context, to string, port uint16) (net.Conn, error) {
	f, err := n.ask(wish{Do: "dial", Network: "tcp", Address: net.JoinHostPort(to, strconv.Itoa(int(port)))})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return net.FileConn(f)
}

func (n *namespace) listen(port uint16) net.Listener {
	n.t.Helper()
	f, err := n.ask(wish{Do: "listen", Network: "tcp", Address: ":" + strconv.Itoa(int(port))})
	if err != nil {
		n.t.Fatal(err)
	}
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = l.Close() })
	return l
}

func (n *namespace) udp(to string, port uint16) net.Conn {
	n.t.Helper()
	f, err := n.ask(wish{Do: "dial", Network: "udp", Address: net.JoinHostPort(to, strconv.Itoa(int(port)))})
	if err != nil {
		n.t.Fatal(err)
	}
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = c.Close() })
	return c
}

// packet opens a socket that sends whole frames.
func (n *namespace) packet() *os.File {
	n.t.Helper()
	f, err := n.ask(wish{Do: "packet"})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = f.Close() })
	return f
}

// attach makes a link on the namespace's file.
func (n *namespace) attach(w *wire.Wire, mtu int) driver.Link {
	n.t.Helper()
	l, err := w.Attach(n.t.Context(), driver.LinkSpec{ID: carrel.NewID(), MTU: mtu}, n.dup())
	if err != nil {
		n.t.Fatal(err)
	}
	return l
}

// insideSockets is the helper.
func insideSockets() {
	const conn = 3
	unix.CloseOnExec(conn)
	b := make([]byte, 4096)
	for {
		n, err := unix.Read(conn, b)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return
		}
		var w wish
		must(json.Unmarshal(b[:n], &w))
		f, err := grant(w)
		var r reply
		var rights []byte
		if err != nil {
			var errno syscall.Errno
			if errors.As(err, &errno) {
				r.Errno = int(errno)
			}
			r.Text = err.Error()
		} else if f != nil {
			rights = unix.UnixRights(int(f.Fd()))
		}
		told, err := json.Marshal(r)
		must(err)
		must(unix.Sendmsg(conn, told, rights, nil, 0))
		if f != nil {
			must(f.Close())
		}
	}
}

// grant makes a socket.
func grant(w wish) (*os.File, error) {
	var c interface {
		io.Closer
		File() (*os.File, error)
	}
	switch w.Do {
	case "dial":
		d, err := net.DialTimeout(w.Network, w.Address, time.Minute)
		if err != nil {
			return nil, err
		}
		c = d.(interface {
			io.Closer
			File() (*os.File, error)
		})
	case "listen":
		l, err := net.Listen(w.Network, w.Address)
		if err != nil {
			return nil, err
		}
		c = l.(*net.TCPListener)
	case "packet":
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		i, err := net.InterfaceByName(tap.Interface)
		if err != nil {
			return nil, err
		}
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: i.Index}); err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fd), "packet"), nil
	case "up", "down":
		return nil, switchInterface(w.Do == "up")
	}
	defer c.Close()
	return c.File()
}

// switchInterface switches the link's inner end on or off, as a hostile root could.
func switchInterface(up bool) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq(tap.Interface)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, req); err != nil {
		return err
	}
	flags := req.Uint16() &^ unix.IFF_UP
	if up {
		flags |= unix.IFF_UP
	}
	req.SetUint16(flags)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}
