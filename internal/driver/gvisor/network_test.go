package gvisor_test

import (
	"context"
	"math"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"github.com/carrel-dev/carrel/internal/driver"
)

// testNetwork is the smallest end of a link. It can dial in, and answers nothing. With it these
// tests do not depend on package wire.
type testNetwork struct{}

type testLink struct {
	stack *stack.Stack
	file  *os.File
	once  sync.Once
}

func (testNetwork) Attach(_ context.Context, spec driver.LinkSpec, f *os.File) (driver.Link, error) {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	mac, _ := net.ParseMAC(driver.GatewayMAC)
	// A sentry would inherit the event descriptor that gVisor's endpoint makes.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	defer unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	ep, err := fdbased.New(&fdbased.Options{
		FDs: []int{int(f.Fd())}, MTU: uint32(spec.MTU), EthernetHeader: true, Address: tcpip.LinkAddress(mac),
		PacketDispatchMode: fdbased.Readv, IsPacketSocket: []bool{false}, PreConfigured: true, RXChecksumOffload: true,
	})
	if err != nil {
		f.Close()
		return nil, err
	}
	const nic = 1
	s.CreateNIC(nic, ep)
	addr := tcpip.AddrFromSlice(net.ParseIP(driver.GatewayIPv4).To4())
	s.AddProtocolAddress(nic, tcpip.ProtocolAddress{
		Protocol:          ipv4.ProtocolNumber,
		AddressWithPrefix: tcpip.AddressWithPrefix{Address: addr, PrefixLen: driver.PrefixIPv4},
	}, stack.AddressProperties{})
	subnet := tcpip.AddressWithPrefix{Address: addr, PrefixLen: driver.PrefixIPv4}
	s.SetRouteTable([]tcpip.Route{{Destination: subnet.Subnet(), NIC: nic}})
	return &testLink{stack: s, file: f}, nil
}

func (l *testLink) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	return gonet.DialContextTCP(ctx, l.stack, tcpip.FullAddress{
		Addr: tcpip.AddrFromSlice(net.ParseIP(driver.GuestIPv4).To4()), Port: port,
	}, ipv4.ProtocolNumber)
}

func (l *testLink) Close() error {
	l.once.Do(func() {
		l.stack.Destroy()
		l.file.Close()
	})
	return nil
}
