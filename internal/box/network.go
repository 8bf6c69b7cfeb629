//go:build linux

package box

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/linux/tap"
)

// network brings up the box's own loopback and its link.
func (b *builder) network() error {
	switch b.Spec.Network {
	case Closed:
		if err := b.begin.loopback(); err != nil {
			return err
		}
		b.names()
	case Wired:
		return b.wire()
	}
	return nil
}

// loopback brings lo up; the kernel then gives it its addresses.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return os.NewSyscallError("lo up", unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req))
}

// wire hands out the link.
func (b *builder) wire() error {
	if err := b.begin.link(); err != nil {
		return err
	}
	b.hand("link", b.linkFD)
	return nil
}

// makeLink makes the link. The host's process learns of the box's end in another way, and closes
// its file then. So the device may be in the box's own namespace. A link without a TAP device moves
// this thread to another namespace than the others are in.
func (b *builder) makeLink() error {
	f, err := tap.Setup(tap.Config{Here: true})
	if err != nil {
		return err
	}
	defer f.Close()
	if b.linkFD, err = unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return os.NewSyscallError("dup", err)
	}
	const here = "/proc/thread-self/ns/net"
	var own, others unix.Stat_t
	if err := errors.Join(unix.Stat(here, &own), unix.Stat("/proc/self/ns/net", &others)); err != nil {
		return &os.PathError{Op: "stat", Path: here, Err: err}
	}
	if own.Ino == others.Ino {
		return nil
	}
	if b.netns, err = unix.Open(here, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return &os.PathError{Op: "open", Path: here, Err: err}
	}
	return nil
}

// resolvConf is the index of our own file among builder.files.
const resolvConf = -1

// resolvText is the content for /etc/resolv.conf; "" leaves it as it is.
func (b *builder) resolvText() string {
	switch b.Spec.Network {
	case Closed:
		return "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"
	case Wired:
		return "nameserver " + driver.GatewayIPv4 + "\n"
	}
	text, _ := os.ReadFile("/etc/resolv.conf") // it may be a link to /run, which is not the host's any more
	return string(text)
}

// dial connects to a port inside and gives the connection to the host's process.
func (b *builder) dial(m message) {
	fd, err := b.connect(m.Port)
	if err != nil {
		_ = b.conn.send(message{Word: dial, ID: m.ID, Failure: fault("connect", err)})
		return
	}
	_ = b.conn.send(message{Word: dial, ID: m.ID}, fd)
	_ = unix.Close(fd)
}

// connectTime is the time limit of a connection to a port inside.
const connectTime = 10 * time.Second

// connected waits for a connection whose connect ended with err. A signal, such as those of Go's
// scheduler, interrupts connect on a socket with a time limit, and the connection goes on being
// made.
func connected(fd int, err error) error {
	if !errors.Is(err, unix.EINTR) {
		return err
	}
	deadline := time.Now().Add(connectTime)
	ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	for {
		n, err := unix.Poll(ready, int(max(time.Until(deadline), 0)/time.Millisecond))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return unix.ETIMEDOUT
		}
		fault, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && fault != 0 {
			err = unix.Errno(fault)
		}
		return err
	}
}

func (b *builder) connect(port uint16) (int, error) {
	if b.netns >= 0 {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if err := unix.Setns(b.netns, unix.CLONE_NEWNET); err != nil {
			return -1, os.NewSyscallError("setns", err)
		}
	}
	var last error
	for _, to := range []unix.Sockaddr{&unix.SockaddrInet4{Port: int(port), Addr: [4]byte{127, 0, 0, 1}},
		&unix.SockaddrInet6{Port: int(port), Addr: [16]byte{15: 1}}} {
		family := unix.AF_INET
		if _, six := to.(*unix.SockaddrInet6); six {
			family = unix.AF_INET6
		}
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return -1, os.NewSyscallError("socket", err)
		}
		limit := unix.NsecToTimeval(connectTime.Nanoseconds())
		_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit)
		if err = connected(fd, unix.Connect(fd, to)); err == nil {
			return fd, nil
		}
		_ = unix.Close(fd)
		last = fmt.Errorf("port %d: %w", port, err)
	}
	return -1, last
}
