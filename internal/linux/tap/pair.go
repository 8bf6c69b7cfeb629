package tap

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
)

// A host may close /dev/net/tun to its users and still let them have network namespaces. There, a
// link is a pair of virtual Ethernet devices. One becomes eth0. Its frames come out of the other,
// which is made in a namespace with nothing else in it. A packet socket bound to the other device
// is the host's end. It reads and writes frames with the same headers as a TAP device. It keeps
// only its own namespace alive, so eth0 need not be moved.
//
// The socket's receive buffer is small for an ordinary user. Frames that do not fit are lost, as on
// a real network. So the wire offers a smaller window than to a TAP device.

// Peer is the name of the device that the packet socket is bound to.
const Peer = "wire0"

// errPair takes the place of a TAP device's error where no TAP device was wanted.
var errPair = errors.New("no TAP device was asked for")

// besides is the error if neither way works.
func besides(device, pair error) error {
	e := &carrel.Error{Op: "set up network link", Kind: carrel.Unsupported, Err: fmt.Errorf("without a TAP device: %w", pair)}
	if known := (*carrel.Error)(nil); errors.As(device, &known) {
		e.Err, e.Hint = fmt.Errorf("%w; without a TAP device: %w", known.Err, pair), known.Hint
	}
	return e
}

// openPair makes the pair: eth0 in the namespace of the calling thread, the other device in one of
// its own.
func openPair(c Config) (f *os.File, err error) {
	a, err := newApart()
	if err != nil {
		return nil, fmt.Errorf("another network namespace: %w", err)
	}
	defer a.close()
	if err := makePair(c.MTU, a.ns); err != nil {
		return nil, fmt.Errorf("make a pair of virtual Ethernet devices: %w", err)
	}
	err = a.do(func() (err error) {
		f, err = openPeer(!c.Plain)
		return err
	})
	return f, err
}

// apart is a thread in a network namespace of its own. The packet socket keeps that namespace after
// the thread has ended.
type apart struct {
	ns   *os.File
	jobs chan func()
}

func newApart() (*apart, error) {
	a := &apart{jobs: make(chan func())}
	ready := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with its goroutine
		err := os.NewSyscallError("unshare network", unix.Unshare(unix.CLONE_NEWNET))
		if err == nil {
			a.ns, err = os.Open("/proc/thread-self/ns/net")
		}
		ready <- err
		for job := range a.jobs {
			job()
		}
	}()
	if err := <-ready; err != nil {
		close(a.jobs)
		return nil, err
	}
	return a, nil
}

// do runs f on the thread.
func (a *apart) do(f func() error) error {
	done := make(chan error, 1)
	a.jobs <- func() { done <- f() }
	return <-done
}

func (a *apart) close() {
	close(a.jobs)
	_ = a.ns.Close()
}

// openPeer opens the other device, in its namespace.
func openPeer(header bool) (*os.File, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	defer h.Close()
	// Only the socket may send from this end.
	_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+Peer+"/disable_ipv6", []byte("1"), 0)
	peer, err := h.LinkByName(Peer)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", Peer, err)
	}
	if err := errors.Join(h.LinkSetARPOff(peer), h.LinkSetUp(peer)); err != nil {
		return nil, fmt.Errorf("%s: %w", Peer, err)
	}
	return packets(peer.Attrs().Index, header)
}

// makePair asks the kernel for the two devices. The library has a call for this, but it would bring
// the code of all kinds of devices into the small program of a box.
func makePair(mtu int, other *os.File) error {
	const vethPeer = 1 // VETH_INFO_PEER of linux/veth.h
	attributes := func(name string) []*nl.RtAttr {
		return []*nl.RtAttr{nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)), nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(mtu)))}
	}
	request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	request.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	for _, a := range attributes(Interface) {
		request.AddData(a)
	}
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("veth"))
	peer := info.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(vethPeer, nil)
	peer.AddChild(nl.NewIfInfomsg(unix.AF_UNSPEC))
	for _, a := range attributes(Peer) {
		peer.AddChild(a)
	}
	peer.AddRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(other.Fd())))
	request.AddData(info)
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// packets opens a packet socket on a device.
func packets(index int, header bool) (*os.File, error) {
	// The socket has no protocol until it is bound. Otherwise it would receive frames of other
	// devices.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("packet socket", err)
	}
	f := os.NewFile(uintptr(fd), "packets")
	fail := func(name string, err error) (*os.File, error) {
		_ = f.Close()
		return nil, os.NewSyscallError(name, err)
	}
	if header {
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
			return fail("setsockopt PACKET_VNET_HDR", err)
		}
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1) // Linux 4.20
	for _, option := range []struct{ forced, plain int }{{unix.SO_RCVBUFFORCE, unix.SO_RCVBUF}, {unix.SO_SNDBUFFORCE, unix.SO_SNDBUF}} {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, option.forced, packetBuffer) != nil {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, option.plain, packetBuffer)
		}
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_ALL), Ifindex: index}); err != nil {
		return fail("bind packet socket", err)
	}
	return f, nil
}

// packetBuffer is the wanted size. An ordinary user gets at most net.core.rmem_max.
const packetBuffer = 8 << 20

// networkOrder swaps the bytes of a number. All machines that Carrel runs on are little-endian.
func networkOrder(n uint16) uint16 { return n<<8 | n>>8 }

// Packets reports whether fd is a packet socket, and whether each frame has a struct virtio_net_hdr
// before it.
func Packets(fd int) (header, isPackets bool) {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil || domain != unix.AF_PACKET {
		return false, false
	}
	n, err := unix.GetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR)
	return err == nil && n != 0, true
}

// Way says in words in which of the two ways f was made.
func Way(f *os.File) string {
	way := "a TAP device"
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			if _, ok := Packets(int(fd)); ok {
				way = "a pair of virtual Ethernet devices"
			}
		})
	}
	return way
}
