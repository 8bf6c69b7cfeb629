// Package lan is a network of hosts for tests: each host is a network namespace, and all are joined
// by a switch in the test's own process. The switch can lose frames, and cut one host off from another.
// Nothing of it touches the machine's own network, and all of it is gone when the test's
// process ends.
//
// The test's process is a host itself. So that it can be one, [Main] runs the tests in a process with a
// namespace of its own.
package lan

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// inside is set in the process that has the namespace.
const inside = "CARREL_TEST_LAN"

// Main runs a package's tests in a network namespace of their own, and returns their exit code. TestMain
// calls it. Without the right to make a namespace, the tests run where they are, and [New] skips them.
func Main(m *testing.M) int {
	if os.Getenv(inside) != "" {
		return m.Run()
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // Pdeathsig is about the thread
	err := cmd.Run()
	if code, ended := errors.AsType[*exec.ExitError](err); ended {
		return code.ExitCode()
	}
	if err != nil {
		return m.Run()
	}
	return 0
}

// LAN is the network of one test.
type LAN struct {
	t     testing.TB
	sw    *Switch
	hosts []*Host
}

// Host is one of its machines.
type Host struct {
	Addr netip.Addr

	port int
	ns   *os.File // nil: the test's own
}

// most is how many hosts there can be: the last byte of an address names one.
const most = 200

// subnet is what all addresses begin with.
var subnet = netip.MustParsePrefix("10.77.0.0/24")

// New makes a network of which the test itself is a part. It ends with the test.
func New(t testing.TB) *LAN {
	t.Helper()
	var err error
	if os.Getenv(inside) == "" {
		err = errors.New("a network namespace of the test's own (root)")
	}
	testenv.Need(t, "namespaces", err)
	l := &LAN{t: t, sw: newSwitch()}
	t.Cleanup(l.sw.close)
	if err := l.plug(&Host{}); err != nil { // this process

		t.Fatal(err)
	}
	return l
}

// Switch is what joins the hosts.
func (l *LAN) Switch() *Switch { return l.sw }

// Add adds a host.
func (l *LAN) Add(name string) *Host {
	l.t.Helper()
	h := &Host{}
	err := apart(func() error {
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			h.ns, err = os.Open("/proc/thread-self/ns/net")
		}
		if err == nil {
			err = l.plug(h)
		}
		return err
	})
	if err != nil {
		l.t.Fatalf("host %s: %v", name, err)
	}
	l.t.Cleanup(func() { _ = h.ns.Close() })
	return h
}

// plug makes a host's link, in the calling thread's namespace.
func (l *LAN) plug(h *Host) error {
	if len(l.hosts) >= most {
		return fmt.Errorf("%d hosts are the most", most)
	}
	h.port = len(l.hosts)
	number := byte(h.port + 1)
	prefix := subnet.Addr().As4()
	prefix[3] = number
	h.Addr = netip.AddrFrom4(prefix)
	file, err := openTap()
	if err != nil {
		return err
	}
	if err := up(h.Addr, mac(number)); err != nil {
		return errors.Join(err, file.Close())
	}
	l.hosts = append(l.hosts, h)
	l.sw.plug(file)
	return nil
}

// mac is the hardware address of a host. The switch forwards by its last byte.
func mac(number byte) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, number} }

// device is a host's only device beside lo.
const device = "eth0"

// openTap makes a host's device and returns the other end of its cable.
func openTap() (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	r, err := unix.NewIfreq(device)
	if err == nil {
		r.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, r)
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), device), nil
}

// mtu is large, because each frame costs this process two system calls.
const mtu = 60000

// up brings a namespace's devices up.
func up(addr netip.Addr, hw net.HardwareAddr) error {
	h, err := netlink.NewHandle()
	if err != nil {
		return err
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		return err
	}
	eth, err := h.LinkByName(device)
	if err != nil {
		return err
	}
	ip := &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(subnet.Bits(), 32)}
	for _, step := range []func() error{
		func() error { return h.LinkSetUp(lo) },
		func() error { return h.LinkSetHardwareAddr(eth, hw) },
		func() error { return h.LinkSetMTU(eth, mtu) },
		func() error { return h.AddrAdd(eth, &netlink.Addr{IPNet: ip}) },
		func() error { return h.LinkSetUp(eth) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// Start starts a command on the host.
func (h *Host) Start(cmd *exec.Cmd) error { return h.do(cmd.Start) }

// Listen listens on a TCP port of the host.
func (h *Host) Listen(port int) (l net.Listener, err error) {
	err = h.do(func() (err error) {
		l, err = net.Listen("tcp", h.At(port))
		return err
	})
	return l, err
}

// do runs f in the host's namespace. What f starts or opens stays there.
func (h *Host) do(f func() error) error {
	if h.ns == nil {
		return f()
	}
	return apart(func() error {
		if err := unix.Setns(int(h.ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}

// apart calls f on a thread that it may move to another network namespace. The thread comes back: it may
// have started a process before that is to end with it.
func apart(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer home.Close()
	defer func() {
		if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
			panic(err) // nothing that this thread does from now on would be where it should
		}
	}()
	return f()
}

// At is a port of the host, as an address to listen on or to dial.
func (h *Host) At(port int) string { return netip.AddrPortFrom(h.Addr, uint16(port)).String() }
