package wire

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
)

const nicID tcpip.NICID = 1

const (
	// firstAttempt is how long Dial waits for an answer to its first SYN. A guest that is just
	// booting loses this SYN, and the stack itself would repeat it only after a second.
	firstAttempt = 250 * time.Millisecond
	lastAttempt  = 4 * time.Second
)

// Link is one sandbox's link with the stack on it.
type Link struct {
	id     carrel.ID
	wire   *Wire
	ep     *endpoint
	stack  *stack.Stack
	window int // the largest receive buffer of a connection
	rules  atomic.Pointer[rules]
	ctx    context.Context // ends with the link; parent of the guest's requests
	cancel context.CancelFunc
	out    *egress
	// peeking counts the bytes of connections that are not yet understood.
	peeking atomic.Int64
	down    chan struct{} // closed when the sandbox's end is gone

	closing sync.Once
	closed  chan struct{}
}

var _ driver.Link = (*Link)(nil)

func newLink(w *Wire, spec driver.LinkSpec, fd *os.File, r *rules) (*Link, error) {
	ep, err := newEndpoint(fd, spec.MTU, driver.GatewayMAC, driver.GuestMAC)
	if err != nil {
		return nil, err
	}
	ep.checksums = spec.Checksums
	ep.gw = []tcpip.Address{addr(driver.GatewayIPv4), addr(driver.GatewayIPv6)}
	l := &Link{id: spec.ID, wire: w, ep: ep, down: make(chan struct{}), closed: make(chan struct{})}
	l.rules.Store(r)
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.out = newEgress(l)
	ep.onDown = func() { close(l.down); l.cancel(); l.out.cutAll() }
	l.window = ep.window()
	if l.stack, err = newStack(l.window); err == nil {
		ep.lingers = l.lingers
		l.stack.SetTransportProtocolHandler(tcp.ProtocolNumber, l.out.handleTCP)
		l.stack.SetTransportProtocolHandler(udp.ProtocolNumber, l.out.handleUDP)
		err = configure(l.stack, ep)
	}
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

func newStack(window int) (*stack.Stack, error) {
	s := stack.New(stack.Options{
		RandSource:         sharedRandom{},
		IPTables:           &stack.IPTables{}, // no filtering here; the default tables take 8 KiB
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{newTCP, udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6},
	})
	sack, moderate := tcpip.TCPSACKEnabled(true), tcpip.TCPModerateReceiveBufferOption(true)
	// RACK mistakes reordering inside the stack for loss, and slows bulk transfers down.
	recovery := tcpip.TCPRecovery(0)
	receive := tcpip.TCPReceiveBufferSizeRangeOption{Min: 4 << 10, Default: min(firstWindow, window), Max: window}
	send := tcpip.TCPSendBufferSizeRangeOption{Min: 4 << 10, Default: 1 << 20, Max: maxWindow}
	timeWait := tcpip.TCPTimeWaitTimeoutOption(lingering)
	for _, o := range []tcpip.SettableTransportProtocolOption{&sack, &moderate, &recovery, &receive, &send, &timeWait} {
		if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, o); err != nil {
			s.Destroy()
			return nil, fmt.Errorf("set %T: %s", o, err)
		}
	}
	return s, nil
}

// sharedRandom is the process's random source. A source of each stack's own would cost 5 KiB.
type sharedRandom struct{}

// Int63 implements rand.Source.
func (sharedRandom) Int63() int64 { return rand.Int64() }

// Seed implements rand.Source; it does nothing.
func (sharedRandom) Seed(int64) {}

// configure sets up the one interface. It enables it last, because the sandbox's frames are taken
// from that moment.
func configure(s *stack.Stack, ep *endpoint) error {
	nets := []struct {
		proto     tcpip.NetworkProtocolNumber
		self      string
		prefix    int
		linkLocal string
	}{
		{ipv4.ProtocolNumber, driver.GatewayIPv4, driver.PrefixIPv4, ""},
		{ipv6.ProtocolNumber, driver.GatewayIPv6, driver.PrefixIPv6, "fe80::"},
	}
	if terr := s.CreateNICWithOptions(nicID, ep, stack.NICOptions{Name: "wire", Disabled: true}); terr != nil {
		return fmt.Errorf("create interface: %s", terr)
	}
	var routes []tcpip.Route
	for _, n := range nets {
		self := tcpip.AddressWithPrefix{Address: addr(n.self), PrefixLen: n.prefix}
		if terr := s.AddProtocolAddress(nicID, tcpip.ProtocolAddress{Protocol: n.proto, AddressWithPrefix: self}, stack.AddressProperties{}); terr != nil {
			return fmt.Errorf("add address %s: %s", n.self, terr)
		}
		routes = append(routes, tcpip.Route{Destination: self.Subnet(), NIC: nicID})
		if n.linkLocal != "" {
			ll := tcpip.AddressWithPrefix{Address: addr(n.linkLocal), PrefixLen: 64}
			routes = append(routes, tcpip.Route{Destination: ll.Subnet(), NIC: nicID})
		}
	}
	s.SetRouteTable(routes)
	// Promiscuous mode accepts packets for any address, because all of them are beyond this
	// gateway. Spoofing allows answers from those addresses.
	if terr := s.SetPromiscuousMode(nicID, true); terr != nil {
		return fmt.Errorf("promiscuous: %s", terr)
	}
	if terr := s.SetSpoofing(nicID, true); terr != nil {
		return fmt.Errorf("spoofing: %s", terr)
	}
	if terr := s.EnableNIC(nicID); terr != nil {
		return fmt.Errorf("enable interface: %s", terr)
	}
	ep.start()
	return nil
}

// Dial connects from the gateway's address to a port of the sandbox. It tries
// until ctx ends; a refusal is final and gives ECONNREFUSED. The connection has CloseWrite and
// deadlines. Bytes that nobody reads fill its buffer, see inbounds.
func (l *Link) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	to := tcpip.FullAddress{NIC: nicID, Addr: addr(driver.GuestIPv4), Port: port}
	for wait := firstAttempt; ; wait = min(2*wait, lastAttempt) {
		c, err := l.dialOnce(ctx, to, wait)
		if !errors.Is(err, errAttempt) {
			if err != nil {
				return nil, &carrel.Error{Op: "dial", Kind: dialKind(err), ID: l.id,
					Err: &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.ParseIP(driver.GuestIPv4), Port: int(port)}, Err: err}}
			}
			return c, nil
		}
	}
}

func dialKind(err error) carrel.Kind {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.ETIMEDOUT) {
		return carrel.TimedOut
	}
	return carrel.Unavailable
}

// errAttempt means that an attempt to connect got no answer in time.
var errAttempt = errors.New("no answer yet")

func (l *Link) dialOnce(ctx context.Context, to tcpip.FullAddress, limit time.Duration) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if l.ctx.Err() != nil {
		return nil, syscall.ECONNRESET
	}
	late := time.NewTimer(limit)
	defer late.Stop()
	c, ep, err := dialStack(ctx, l.stack, ipv4.ProtocolNumber, to, l.ctx.Done(), late.C)
	if err != nil {
		return nil, err
	}
	return l.wire.inbounds.add(c, ep, l.window), nil
}

// dialStack connects from a stack. It gives up when ctx ends, or when the channel gone or late is
// ready; nil channels never are. Its errors are those of the operating system, or errAttempt when
// late was ready.
func dialStack(ctx context.Context, s *stack.Stack, family tcpip.NetworkProtocolNumber, to tcpip.FullAddress,
	gone <-chan struct{}, late <-chan time.Time) (*gonet.TCPConn, tcpip.Endpoint, error) {
	var wq waiter.Queue
	ep, terr := s.NewEndpoint(tcp.ProtocolNumber, family, &wq)
	if terr != nil {
		return nil, nil, errno(terr)
	}
	entry, ready := waiter.NewChannelEntry(waiter.WritableEvents | waiter.EventErr | waiter.EventHUp)
	wq.EventRegister(&entry)
	defer wq.EventUnregister(&entry)
	ep.SocketOptions().SetDelayOption(false)
	terr = ep.Connect(to)
	if _, started := terr.(*tcpip.ErrConnectStarted); started {
		var err error
		select {
		case <-ready:
			terr = ep.LastError()
		case <-ctx.Done():
			err = ctx.Err()
		case <-gone:
			err = syscall.ECONNRESET
		case <-late:
			err = errAttempt
		}
		if err != nil {
			ep.Abort()
			return nil, nil, err
		}
	}
	if terr != nil {
		ep.Close()
		return nil, nil, errno(terr)
	}
	return gonet.NewTCPConn(&wq, ep), ep, nil
}

// setRules replaces the rules and cuts the connections that they forbid.
func (l *Link) setRules(r *rules) {
	l.rules.Store(r)
	l.out.recheck()
}

// Close resets every connection, ends the stack and waits for its goroutines.
// The sandbox may live on; a new stack can be attached to the same socket.
func (l *Link) Close() error {
	l.closing.Do(func() {
		defer close(l.closed)
		l.wire.forget(l)
		l.cancel()
		l.out.close()
		l.out.refusals.close()
		if l.stack != nil {
			l.stack.Close() // sends the resets
		}
		l.ep.close()
		if l.stack != nil {
			l.stack.Destroy()
		}
	})
	<-l.closed
	return nil
}

// errno converts the stack's errors to those of the operating system.
func errno(e tcpip.Error) error {
	switch e.(type) {
	case nil:
		return nil
	case *tcpip.ErrConnectionRefused:
		return syscall.ECONNREFUSED
	case *tcpip.ErrConnectionReset:
		return syscall.ECONNRESET
	case *tcpip.ErrConnectionAborted, *tcpip.ErrAborted:
		return syscall.ECONNABORTED
	case *tcpip.ErrTimeout:
		return syscall.ETIMEDOUT
	case *tcpip.ErrHostUnreachable, *tcpip.ErrHostDown:
		return syscall.EHOSTUNREACH
	case *tcpip.ErrNetworkUnreachable, *tcpip.ErrNoNet:
		return syscall.ENETUNREACH
	case *tcpip.ErrNoPortAvailable:
		return syscall.EADDRNOTAVAIL
	case *tcpip.ErrNoBufferSpace:
		return syscall.ENOBUFS
	case *tcpip.ErrClosedForSend:
		return syscall.EPIPE
	}
	return errors.New(e.String())
}

// addr parses one of the contract's constant addresses.
func addr(s string) tcpip.Address {
	ip := net.ParseIP(s)
	if v4 := ip.To4(); v4 != nil {
		return tcpip.AddrFrom4Slice(v4)
	}
	return tcpip.AddrFrom16Slice(ip.To16())
}
