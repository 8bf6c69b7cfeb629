package wire_test

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/carrel-dev/carrel/internal/wire"
)

// hostService is a program on this machine's loopback that counts its visitors.
type hostService struct {
	port uint16
	came atomic.Int64
}

func newHostService(t *testing.T) *hostService {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hostService{port: uint16(l.Addr().(*net.TCPAddr).Port)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			h.came.Add(1)
			_, _ = c.Write([]byte("the host's answer"))
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return h
}

// opens returns a network that lets everything out and opens ports of the host.
func opens(ports ...uint16) carrel.Network {
	n := carrel.Network{Policy: &carrel.Policy{Default: "allow", Rules: []carrel.Rule{{Allow: []string{"*", "10.0.0.0/8", "fd00::/64"}}}}}
	for _, p := range ports {
		r := carrel.Rule{Allow: []string{policy.HostName}, Ports: []string{strconv.Itoa(int(p))}}
		n.Policy.Rules = append([]carrel.Rule{r}, n.Policy.Rules...)
	}
	return n
}

func anyPort(carrel.ID, uint16) error { return nil }

// TestHostService shows that a sandbox reaches, by name, the one port of this machine's loopback
// that its policy opens. No resolver outside is asked for the name.
func TestHostService(t *testing.T) {
	service, world, log := newHostService(t), newWorld(t), &decisions{}
	_, _, _, g := world.link(t, opens(service.port), wire.Options{HostService: anyPort, Audit: log.add})
	got := g.lookup(policy.HostName)
	if len(got) != 1 || got[0] != policy.HostAddr.String() {
		t.Fatalf("the name leads to %v", got)
	}
	if answer := g.send(got[0], service.port, []byte("hello")); answer != "the host's answer" {
		t.Errorf("the service answers %q", answer)
	}
	if world.has("host.carrel") || world.has("hello") {
		t.Errorf("the outside saw %q", world.text())
	}
	for _, d := range log.all() {
		if !d.Allowed {
			t.Errorf("refused: %+v", d)
		}
	}
}

// TestHostServiceAttacks shows that nothing else leads to the host's loopback.
func TestHostServiceAttacks(t *testing.T) {
	t.Parallel()
	service, other := newHostService(t), newHostService(t)
	forbid := func(port uint16) func(carrel.ID, uint16) error {
		return func(_ carrel.ID, p uint16) error {
			if p == port {
				return errors.New("the port is the daemon's own")
			}
			return nil
		}
	}
	host := policy.HostAddr.String()
	for name, c := range map[string]struct {
		n    carrel.Network
		may  func(carrel.ID, uint16) error
		to   string
		port uint16
	}{
		"everything does not mean the host":    {opens(), anyPort, host, service.port},
		"another port":                         {opens(other.port), anyPort, host, service.port},
		"loopback":                             {opens(service.port), anyPort, "127.0.0.1", service.port},
		"loopback of IPv6":                     {opens(service.port), anyPort, "::1", service.port},
		"the gateway":                          {opens(service.port), anyPort, driver.GatewayIPv4, service.port},
		"the address in NAT64":                 {opens(service.port), anyPort, "64:ff9b::a49:4", service.port},
		"the operator opens nothing":           {opens(service.port), nil, host, service.port},
		"the daemon's own port":                {opens(service.port), forbid(service.port), host, service.port},
		"an address of documentation":          {opens(service.port), anyPort, "192.0.2.1", service.port},
		"a name that is rebound to the host's": {opens(service.port), anyPort, "rebound.example.com", service.port},
		"a name that is rebound to loopback":   {opens(service.port), anyPort, "loop.example.com", service.port},
	} {
		t.Run(name, func(t *testing.T) {
			world := newWorld(t)
			world.Names["rebound.example.com"] = []string{host}
			world.Names["loop.example.com"] = []string{"127.0.0.1", "::1"}
			_, _, _, g := world.link(t, c.n, wire.Options{HostService: c.may})
			to := []string{c.to}
			if strings.HasSuffix(c.to, ".com") {
				if to = g.lookup(c.to); len(to) > 0 {
					t.Errorf("the sandbox is told %v", to)
				}
				to = []string{"198.51.100.77"} // and it says the name to an address of its choice
			}
			for _, a := range to {
				g.send(a, c.port, []byte("GET / HTTP/1.1\r\nHost: "+c.to+"\r\n\r\n"))
				g.send(a, c.port, tlsHello())
			}
			if n := service.came.Load() + other.came.Load(); n != 0 {
				t.Errorf("%d connections came", n)
			}
		})
	}
	t.Run("control", func(t *testing.T) {
		_, _, _, g := newWorld(t).link(t, opens(service.port), wire.Options{HostService: anyPort})
		if g.send(host, service.port, []byte("x")); service.came.Load() != 1 {
			t.Error("the attacks prove nothing: the service is not reached at all")
		}
	})
}

// TestHostServiceClosed shows that the name does not exist if the operator opens nothing, and that
// a changed policy cuts open connections.
func TestHostServiceClosed(t *testing.T) {
	service := newHostService(t)
	_, _, _, g := newWorld(t).link(t, opens(service.port), wire.Options{})
	if m := ask(t, g, dns.Fqdn(policy.HostName), dns.TypeA); m.Rcode != dns.RcodeNameError {
		t.Errorf("the answer is %v", m)
	}
	_, _, _, g = newWorld(t).link(t, opens(), wire.Options{HostService: anyPort})
	if m := ask(t, g, dns.Fqdn(policy.HostName), dns.TypeA); m.Rcode != dns.RcodeNameError {
		t.Errorf("the answer is %v", m)
	}
}

// TestHostServicePastProxy shows that connections to the host do not go through the sandbox's
// proxy.
func TestHostServicePastProxy(t *testing.T) {
	service := newHostService(t)
	n := opens(service.port)
	n.EgressProxy = &carrel.EgressProxy{Address: "203.0.113.9:1080"}
	_, _, _, g := newWorld(t).link(t, n, wire.Options{HostService: anyPort})
	if answer := g.send(policy.HostAddr.String(), service.port, []byte("x")); answer != "the host's answer" {
		t.Errorf("the service answers %q", answer)
	}
}
