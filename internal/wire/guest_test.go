package wire_test

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/wire"
)

const testMTU = 65520

// guest is a sandbox's kernel as the wire sees it. It is gVisor's stack on gVisor's own socket
// endpoint, which drops frames when its socket is full, as the sentry does.
type guest struct {
	*stack.Stack
	t testing.TB
}

// pair returns the two ends of a link: the host's and the guest's. Within TestOverStream, the
// host's end is a stream.
func pair(t testing.TB, buffer int) (host *os.File, guestFD int) {
	t.Helper()
	if overStream(t) {
		return streamPair(t)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if buffer > 0 {
		for _, fd := range fds {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, buffer)
		}
	}
	return os.NewFile(uintptr(fds[0]), "host"), fds[1]
}

func newGuest(t testing.TB, fd, mtu int) *guest {
	t.Helper()
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	mac, _ := tcpip.ParseMACAddress(driver.GuestMAC)
	ep, err := fdbased.New(&fdbased.Options{FDs: []int{fd}, MTU: uint32(mtu), EthernetHeader: true,
		Address: mac, RXChecksumOffload: true, PacketDispatchMode: fdbased.Readv})
	if err != nil {
		t.Fatal(err)
	}
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6},
	})
	sack, moderate, recovery := tcpip.TCPSACKEnabled(true), tcpip.TCPModerateReceiveBufferOption(true), tcpip.TCPRecovery(0)
	s.SetTransportProtocolOption(tcp.ProtocolNumber, &sack)
	s.SetTransportProtocolOption(tcp.ProtocolNumber, &moderate)
	s.SetTransportProtocolOption(tcp.ProtocolNumber, &recovery)
	if terr := s.CreateNIC(1, ep); terr != nil {
		t.Fatal(terr)
	}
	var routes []tcpip.Route
	for _, n := range []struct {
		proto       tcpip.NetworkProtocolNumber
		ip, gateway string
		prefix      int
	}{{ipv4.ProtocolNumber, driver.GuestIPv4, driver.GatewayIPv4, driver.PrefixIPv4}, {ipv6.ProtocolNumber, driver.GuestIPv6, driver.GatewayIPv6, driver.PrefixIPv6}} {
		a := tcpip.AddressWithPrefix{Address: ip(n.ip), PrefixLen: n.prefix}
		if terr := s.AddProtocolAddress(1, tcpip.ProtocolAddress{Protocol: n.proto, AddressWithPrefix: a}, stack.AddressProperties{}); terr != nil {
			t.Fatal(terr)
		}
		all := tcpip.AddressWithPrefix{Address: tcpip.AddrFromSlice(make([]byte, a.Address.Len())), PrefixLen: 0}.Subnet()
		routes = append(routes, tcpip.Route{Destination: a.Subnet(), NIC: 1}, tcpip.Route{Destination: all, Gateway: ip(n.gateway), NIC: 1})
	}
	s.SetRouteTable(routes)
	t.Cleanup(func() {
		s.Close()
		_ = unix.Shutdown(fd, unix.SHUT_RDWR) // ends the endpoint's reader
		s.Destroy()
		_ = unix.Close(fd)
	})
	return &guest{s, t}
}

func ip(s string) tcpip.Address {
	p := net.ParseIP(s)
	if v4 := p.To4(); v4 != nil {
		return tcpip.AddrFrom4Slice(v4)
	}
	return tcpip.AddrFrom16Slice(p)
}

// listen opens a port of the guest.
func (g *guest) listen(port uint16) net.Listener {
	g.t.Helper()
	l, err := gonet.ListenTCP(g.Stack, tcpip.FullAddress{NIC: 1, Addr: ip(driver.GuestIPv4), Port: port}, ipv4.ProtocolNumber)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { l.Shutdown(); l.Close() })
	return l
}

// dial connects from inside to any address.
func (g *guest) dial(ctx context.Context, to string, port uint16) (*gonet.TCPConn, error) {
	proto := ipv4.ProtocolNumber
	if net.ParseIP(to).To4() == nil {
		proto = ipv6.ProtocolNumber
	}
	return gonet.DialContextTCP(ctx, g.Stack, tcpip.FullAddress{NIC: 1, Addr: ip(to), Port: port}, proto)
}

// udp opens a connected UDP socket inside.
func (g *guest) udp(to string, port uint16) *gonet.UDPConn {
	g.t.Helper()
	proto := ipv4.ProtocolNumber
	if net.ParseIP(to).To4() == nil {
		proto = ipv6.ProtocolNumber
	}
	c, err := gonet.DialUDP(g.Stack, nil, &tcpip.FullAddress{NIC: 1, Addr: ip(to), Port: port}, proto)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { c.Close() })
	return c
}

// newLink makes a wire, a link and the guest at its other end.
func newLink(t testing.TB, opts wire.Options) (*wire.Wire, carrel.ID, driver.Link, *guest) {
	t.Helper()
	w := wire.New(opts)
	host, fd := pair(t, 8<<20)
	g := newGuest(t, fd, testMTU)
	id := carrel.NewID()
	l, err := w.Attach(t.Context(), driver.LinkSpec{ID: id, MTU: testMTU}, host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w, id, l, g
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
