package tap

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
)

// A VMM may know its network card's other end only by a TAP device's name, and open that device by
// itself. Then its file is the VMM's, and ours is a packet socket on the device: what the machine
// sends arrives there, and what is written there the machine receives. Both ends have the header
// before each frame, so each may leave checksums and segmentation to the kernel.

// Lend makes a TAP device with this name in the namespace of the calling thread, for a program of
// that namespace with this uid. It returns the host's end, a packet socket that does not block. The
// device has no address, and the kernel answers nothing that arrives on it. The thread must have
// CAP_NET_ADMIN and CAP_NET_RAW over its network namespace. file is the kernel's file for TAP
// devices; "" is /dev/net/tun.
//
// The socket keeps the namespace and the device. It does not report the end of the program.
func Lend(name string, uid, mtu int, file string) (*os.File, error) {
	f, err := lend(name, uid, mtu, Config{Device: file}.withDefaults().Device)
	var known *carrel.Error
	if err != nil && !errors.As(err, &known) {
		err = &carrel.Error{Op: "make TAP device for a VMM", Kind: carrel.Unsupported, Err: err,
			Hint: "TAP devices must be allowed (modprobe tun)"}
	}
	return f, err
}

func lend(name string, uid, mtu int, file string) (*os.File, error) {
	fd, err := unix.Open(file, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: file, Err: err}
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq(name)
	if err != nil {
		return nil, err
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return nil, os.NewSyscallError("ioctl TUNSETIFF", err)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOWNER, uid); err != nil {
		return nil, os.NewSyscallError("ioctl TUNSETOWNER", err)
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	defer h.Close()
	// The kernel would announce itself to the machine.
	_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0)
	link, err := h.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", name, err)
	}
	if err := errors.Join(h.LinkSetMTU(link, mtu), h.LinkSetTxQLen(link, queue), h.LinkSetARPOff(link), h.LinkSetUp(link)); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f, err := packets(link.Attrs().Index, true)
	if err != nil {
		return nil, err
	}
	// From here on the device outlives its file.
	if err := unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1); err != nil {
		_ = f.Close()
		return nil, os.NewSyscallError("ioctl TUNSETPERSIST", err)
	}
	return f, nil
}

// Enlarge gives a packet socket the buffers that a link needs, if this process may: root in its own
// namespace only could not.
func Enlarge(f *os.File) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, packetBuffer)
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, packetBuffer)
	})
}
