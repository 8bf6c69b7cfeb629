package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/carrel-dev/carrel/internal/driver"
)

// Inside is the sandbox's end of a link, for sandboxes that have no kernel to put there. Its
// connections go through the link like those of any sandbox, so the same policy judges them.
type Inside struct {
	stack *stack.Stack
	ep    *endpoint
	close sync.Once
}

// NewInside starts a stack on fd, the other end of the descriptor that [Wire.Attach] was given.
// NewInside owns fd from now on, also on error.
func NewInside(fd *os.File, mtu int) (*Inside, error) {
	if mtu < minMTU || mtu > maxMTU {
		_ = fd.Close()
		return nil, errMTU
	}
	ep, err := newEndpoint(fd, mtu, driver.GuestMAC, driver.GatewayMAC)
	if err != nil {
		return nil, err
	}
	i := &Inside{ep: ep}
	if i.stack, err = newStack(ep.window()); err == nil {
		err = i.configure()
	}
	if err != nil {
		_ = i.Close()
		return nil, err
	}
	return i, nil
}

// configure brings the one interface up.
func (i *Inside) configure() error {
	if terr := i.stack.CreateNICWithOptions(nicID, i.ep, stack.NICOptions{Name: "eth0"}); terr != nil {
		return fmt.Errorf("create interface: %s", terr)
	}
	var routes []tcpip.Route
	for _, n := range []struct {
		proto         tcpip.NetworkProtocolNumber
		self, gateway string
		prefix        int
	}{
		{ipv4.ProtocolNumber, driver.GuestIPv4, driver.GatewayIPv4, driver.PrefixIPv4},
		{ipv6.ProtocolNumber, driver.GuestIPv6, driver.GatewayIPv6, driver.PrefixIPv6},
	} {
		self := tcpip.AddressWithPrefix{Address: addr(n.self), PrefixLen: n.prefix}
		if terr := i.stack.AddProtocolAddress(nicID, tcpip.ProtocolAddress{Protocol: n.proto, AddressWithPrefix: self}, stack.AddressProperties{}); terr != nil {
			return fmt.Errorf("add address %s: %s", n.self, terr)
		}
		everywhere := tcpip.AddressWithPrefix{Address: tcpip.AddrFromSlice(make([]byte, self.Address.Len()))}.Subnet()
		routes = append(routes, tcpip.Route{Destination: self.Subnet(), NIC: nicID}, tcpip.Route{Destination: everywhere, Gateway: addr(n.gateway), NIC: nicID})
	}
	i.stack.SetRouteTable(routes)
	i.ep.start()
	return nil
}

// Close resets open connections and ends the stack.
func (i *Inside) Close() error {
	i.close.Do(func() {
		if i.stack != nil {
			i.stack.Close()
		}
		i.ep.close()
		if i.stack != nil {
			i.stack.Destroy()
		}
	})
	return nil
}

// DialContext connects to "host:port". Network is tcp, tcp4 or tcp6. The gateway looks names up. A
// name that the policy does not allow does not exist.
func (i *Inside) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return fail(err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return fail(fmt.Errorf("port %q: %w", text, err))
	}
	addrs, err := i.lookup(ctx, host)
	if err != nil {
		return fail(err)
	}
	err = fmt.Errorf("%s has no address of that kind", host)
	for _, a := range addrs {
		if a.IsLoopback() || a.IsUnspecified() {
			err = syscall.ECONNREFUSED // the sandbox itself; nothing listens there
			continue
		}
		proto := ipv4.ProtocolNumber
		if a.Is6() {
			proto = ipv6.ProtocolNumber
		}
		if network == "tcp4" && a.Is6() || network == "tcp6" && a.Is4() {
			continue
		}
		to := tcpip.FullAddress{NIC: nicID, Addr: tcpip.AddrFromSlice(a.AsSlice()), Port: uint16(port)}
		var c *gonet.TCPConn
		if c, _, err = dialStack(ctx, i.stack, proto, to, nil, nil); err == nil {
			return c, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return fail(err)
}

// lookupTime bounds one question.
const lookupTime = 10 * time.Second

// lookup asks the gateway for the addresses of a name, IPv4 ones first.
func (i *Inside) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a.Unmap().WithZone("")}, nil
	}
	if strings.EqualFold(host, "localhost") {
		return []netip.Addr{netip.IPv6Loopback(), netip.AddrFrom4([4]byte{127, 0, 0, 1})}, nil
	}
	if _, ok := dns.IsDomainName(host); !ok || host == "" {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	var out []netip.Addr
	var failed error
	for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
		answer, err := i.ask(ctx, host, kind)
		if err != nil {
			failed = err
			continue
		}
		for _, rr := range answer.Answer {
			var ip net.IP
			switch rr := rr.(type) {
			case *dns.A:
				ip = rr.A
			case *dns.AAAA:
				ip = rr.AAAA
			}
			if a, ok := netip.AddrFromSlice(ip); ok {
				out = append(out, a.Unmap())
			}
		}
	}
	switch {
	case len(out) > 0:
		return out, nil
	case failed != nil:
		return nil, &net.DNSError{Err: failed.Error(), Name: host, IsTimeout: errors.Is(failed, context.DeadlineExceeded)}
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// ask sends one question to the gateway. It uses TCP, which needs no second try.
func (i *Inside) ask(ctx context.Context, host string, kind uint16) (*dns.Msg, error) {
	c, err := gonet.DialContextTCP(ctx, i.stack, tcpip.FullAddress{NIC: nicID, Addr: addr(driver.GatewayIPv4), Port: dnsPort}, ipv4.ProtocolNumber)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	q := new(dns.Msg)
	q.SetQuestion(dns.Fqdn(host), kind)
	answer, _, err := (&dns.Client{Net: "tcp", Timeout: lookupTime}).ExchangeWithConn(q, &dns.Conn{Conn: c})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return answer, err
}
