// Package tap makes the one network link of a sandbox that is a plain namespace of this kernel: a
// TAP device whose file is the daemon's end.
//
// # The story
//
// A process that has just been put into new user and network namespaces calls [Setup]. Setup leaves
// the calling thread in a second, new network namespace. That one holds lo and eth0, with the
// addresses, routes and neighbours that package driver fixes for every sandbox. Setup returns the
// file of eth0. The process hands that file out with [Send]; the daemon takes it with [Receive] and
// gives it to its wire. No step needs a right on the host: no root, no bridge, no route, no NAT.
//
// [Spawn] does all of it for a program. Tests and measurements use it to get a program behind a
// wire.
//
// # Why two namespaces
//
// The file of a TAP device keeps alive the network namespace it was opened in. If that were the
// sandbox's, the namespace and the device would live on until the daemon let go of the file, and
// the daemon would never learn that the sandbox is dead. So the file belongs to the first namespace
// and the device is moved to the second: when the last process there ends, the kernel removes the
// device, and the file reports it.
//
// # Without a TAP device
//
// If this user can't open /dev/net/tun, the link is a pair of virtual Ethernet devices. Its file is a
// packet socket on the second device, which is in a namespace of its own. See pair.go.
package tap

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// Interface is the device's name inside.
const Interface = "eth0"

// DefaultMTU is the largest MTU that IPv4 and IPv6 can use with room for their headers.
const DefaultMTU = 65520

// device is the kernel's file for making TAP devices.
const device = "/dev/net/tun"

// Config configures the link. The zero value is the link of a sandbox.
type Config struct {
	// MTU is the largest IP packet, at least 1280; zero is DefaultMTU.
	MTU int
	// Plain leaves out the header before each frame. With the header the two ends can trust each
	// other's checksums and pass segments bigger than the MTU. The file itself tells the wire
	// whether there is a header.
	Plain bool
	// Device is opened instead of /dev/net/tun, if set.
	Device string
	// Here leaves the device in the namespace of the calling thread, because moving it makes the
	// kernel wait for 20 ms. The file then keeps the namespace alive and does not report its end.
	// So its owner must learn of the end in another way and close the file. A pair is never moved.
	Here bool
	// Pair makes the link without a TAP device: see pair.go. Without Pair, a pair is also made if
	// Device is empty and this user can't open /dev/net/tun.
	Pair bool
}

func (c Config) withDefaults() Config {
	if c.MTU == 0 {
		c.MTU = DefaultMTU
	}
	if c.Device == "" {
		c.Device = device
	}
	return c
}

// offloads is the work that the device may leave to the other end: checksums, and TCP segments of
// up to 64 KiB with any MTU.
const offloads = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN

// Setup makes the link and returns the host's end, which does not block. The calling goroutine must
// be locked to its thread. The thread must have CAP_NET_ADMIN over its network namespace, and
// CAP_NET_RAW for a pair. Programs that this thread executes next run in the namespace of the link.
// Error: Unsupported when this host gives neither TAP devices nor pairs.
func Setup(c Config) (*os.File, error) {
	paired := c.Pair || c.Device == ""
	c = c.withDefaults()
	var f *os.File
	err := errPair
	if !c.Pair {
		f, err = open(c)
	}
	if err != nil && paired {
		var without error
		if f, without = openPair(c); without != nil {
			return nil, besides(err, without)
		}
		err = nil
		c.Here = true // where the programs are, as the other device is not
	}
	if err != nil {
		return nil, err
	}
	if c.Here {
		err = configure(c)
	} else {
		err = move(f, c)
	}
	if err != nil {
		_ = f.Close()
		return nil, &carrel.Error{Op: "set up network link", Kind: carrel.Internal, Err: err}
	}
	return f, nil
}

// open makes the device in the namespace of the calling thread.
func open(c Config) (*os.File, error) {
	fd, err := unix.Open(c.Device, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &carrel.Error{Op: "open TAP device", Kind: carrel.Unsupported,
			Err:  &os.PathError{Op: "open", Path: c.Device, Err: err},
			Hint: "this user must be able to read and write " + c.Device + " (modprobe tun; chmod 666 " + c.Device + ")"}
	}
	f := os.NewFile(uintptr(fd), "tap")
	if err := create(fd, !c.Plain); err != nil {
		_ = f.Close()
		return nil, &carrel.Error{Op: "make TAP device", Kind: carrel.Unsupported, Err: err}
	}
	return f, nil
}

func create(fd int, header bool) error {
	req, err := unix.NewIfreq(Interface)
	if err != nil {
		return err
	}
	flags := uint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if header {
		flags |= unix.IFF_VNET_HDR
	}
	req.SetUint16(flags)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return os.NewSyscallError("ioctl TUNSETIFF", err)
	}
	if !header {
		return nil
	}
	err = unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, offloads)
	return os.NewSyscallError("ioctl TUNSETOFFLOAD", err)
}

// Header reports whether fd is a TAP device's file, and whether each frame has a struct
// virtio_net_hdr before it. After its device is gone, a file no longer counts as one.
func Header(fd int) (header, isTAP bool) {
	req, err := unix.NewIfreq("")
	if err != nil || unix.IoctlIfreq(fd, unix.TUNGETIFF, req) != nil {
		return false, false
	}
	flags := req.Uint16()
	return flags&unix.IFF_VNET_HDR != 0, flags&unix.IFF_TAP != 0 && flags&unix.IFF_NO_PI != 0
}

// Send gives the link's file to the process at the other end of a socket.
func Send(socket int, f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	cerr := conn.Control(func(fd uintptr) {
		err = unix.Sendmsg(socket, []byte{1}, unix.UnixRights(int(fd)), nil, 0)
	})
	return errors.Join(cerr, os.NewSyscallError("sendmsg", err))
}

// maxMessage bounds a message that the other end sends instead of the file, in bytes.
const maxMessage = 4096

// Receive waits for the file that Send sends, or for the text of an error.
func Receive(socket int) (*os.File, error) {
	b, oob := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := recvmsg(socket, b, oob)
	if err != nil {
		return nil, os.NewSyscallError("recvmsg", err)
	}
	fds, err := proc.Rights(oob[:oobn])
	if err != nil {
		return nil, err
	}
	switch {
	case len(fds) == 1:
		return os.NewFile(uintptr(fds[0]), "tap"), nil
	case n == 0:
		return nil, errors.New("it ended without a word")
	}
	return nil, fmt.Errorf("%s", b[:n])
}

func recvmsg(socket int, b, oob []byte) (n, oobn, flags int, from unix.Sockaddr, err error) {
	for {
		n, oobn, flags, from, err = unix.Recvmsg(socket, b, oob, unix.MSG_CMSG_CLOEXEC)
		if err != unix.EINTR {
			return n, oobn, flags, from, err
		}
	}
}
