package wire_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/wire"
)

// askFor sends a question unchanged, over UDP or TCP, and returns the answer.
func askFor(t testing.TB, g *guest, server string, tcp bool, q *dns.Msg) *dns.Msg {
	t.Helper()
	c := &dns.Conn{UDPSize: 4096}
	if tcp {
		conn, err := g.dial(within(t, time.Minute), server, 53)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		c.Conn = conn
	} else {
		c.Conn = packetConn{g.udp(server, 53)}
	}
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if err := c.WriteMsg(q); err != nil {
		t.Fatal(err)
	}
	a, err := c.ReadMsg()
	if err != nil {
		t.Fatal(err)
	}
	if a.Id != q.Id || !a.Response {
		t.Errorf("no answer to the question: %v", a)
	}
	return a
}

func TestQuestions(t *testing.T) {
	w := newWorld(t)
	var log decisions
	_, _, _, g := w.link(t, onlyAPI, wire.Options{Audit: log.add})
	for _, c := range []struct {
		name  string
		kind  uint16
		class uint16
		code  int
		count int
	}{
		{"api.example.com.", dns.TypeA, dns.ClassINET, dns.RcodeSuccess, 1},
		{"aPI.examPLE.com.", dns.TypeAAAA, dns.ClassINET, dns.RcodeSuccess, 1},
		{"api.example.com.", dns.TypeTXT, dns.ClassINET, dns.RcodeSuccess, 0},
		{"api.example.com.", dns.TypeHTTPS, dns.ClassINET, dns.RcodeSuccess, 0},
		{"api.example.com.", dns.TypeSVCB, dns.ClassINET, dns.RcodeSuccess, 0},
		{"api.example.com.", dns.TypeANY, dns.ClassINET, dns.RcodeRefused, 0},
		{"api.example.com.", dns.TypeAXFR, dns.ClassINET, dns.RcodeRefused, 0},
		{"api.example.com.", dns.TypeIXFR, dns.ClassINET, dns.RcodeRefused, 0},
		{"api.example.com.", dns.TypeNULL, dns.ClassINET, dns.RcodeRefused, 0},
		{"api.example.com.", 65300, dns.ClassINET, dns.RcodeRefused, 0},
		{"api.example.com.", dns.TypeA, dns.ClassCHAOS, dns.RcodeRefused, 0},
		{"evil.example.net.", dns.TypeA, dns.ClassINET, dns.RcodeNameError, 0},
		{"evil.example.net.", dns.TypeHTTPS, dns.ClassINET, dns.RcodeNameError, 0},
		{"x.api.example.com.", dns.TypeA, dns.ClassINET, dns.RcodeNameError, 0},
		{`api\000.example.com.`, dns.TypeA, dns.ClassINET, dns.RcodeRefused, 0},
		{".", dns.TypeNS, dns.ClassINET, dns.RcodeRefused, 0},
		// Addresses that no name may lead to are removed from the answer.
		{"half.example.com.", dns.TypeA, dns.ClassINET, dns.RcodeSuccess, 1},
		{"rebind.example.com.", dns.TypeA, dns.ClassINET, dns.RcodeSuccess, 0},
		{"rebind.example.com.", dns.TypeAAAA, dns.ClassINET, dns.RcodeSuccess, 0},
	} {
		for _, tcp := range []bool{false, true} {
			q := new(dns.Msg).SetQuestion(c.name, c.kind)
			q.Question[0].Qclass = c.class
			q.SetEdns0(4096, true)
			a := askFor(t, g, driver.GatewayIPv4, tcp, q)
			if a.Rcode != c.code || len(a.Answer) != c.count || len(a.Ns) != 0 || len(a.Extra) != 1 {
				t.Errorf("%s %s (tcp %v): %v, want %s and %d records", c.name, dns.TypeToString[c.kind], tcp, a, dns.RcodeToString[c.code], c.count)
				continue
			}
			if len(a.Question) != 1 || a.Question[0] != q.Question[0] || c.count > 0 && a.Answer[0].Header().Name != c.name {
				t.Errorf("%s is spelled otherwise in %v", c.name, a)
			}
			why := slices.ContainsFunc(a.IsEdns0().Option, func(o dns.EDNS0) bool {
				e, ok := o.(*dns.EDNS0_EDE)
				return ok && e.InfoCode == dns.ExtendedErrorCodeBlocked && strings.HasPrefix(e.ExtraText, "blocked by policy: ")
			})
			if refused := c.code != dns.RcodeSuccess; why != refused {
				t.Errorf("%s: explained %v, want %v: %v", c.name, why, refused, a)
			}
		}
	}
	for _, gone := range []string{"evil", "x.api", "CH\t", "TYPE65300", "HTTPS"} {
		if w.has(gone) {
			t.Errorf("%q was asked outside", gone)
		}
	}
	if !slices.ContainsFunc(log.all(), func(d carrel.Decision) bool {
		return d.Allowed && d.Protocol == "dns" && d.Name == "api.example.com" && d.Method == "A" && d.Rule == "rule 1 (api)"
	}) {
		t.Errorf("no answered question in the log: %+v", log.all())
	}
	// Broken questions.
	for _, b := range [][]byte{{}, {1}, make([]byte, 12), append(make([]byte, 12), 0xc0, 12), []byte(strings.Repeat("\xff", 600))} {
		u := g.udp(driver.GatewayIPv4, 53)
		_, _ = u.Write(b)
	}
	if a := askFor(t, g, driver.GatewayIPv6, false, new(dns.Msg).SetQuestion("api.example.com.", dns.TypeA)); a.Rcode != 0 || a.IsEdns0() != nil {
		t.Errorf("after broken questions: %v", a)
	}
}

// liar is a resolver that adds records nobody asked for.
type liar struct{ text []string }

func (l liar) Exchange(_ context.Context, q *dns.Msg) (*dns.Msg, error) {
	a := new(dns.Msg).SetReply(q)
	for _, s := range l.text {
		rr, err := dns.NewRR(s)
		if err != nil {
			return nil, err
		}
		a.Answer = append(a.Answer, rr)
	}
	a.Ns, a.Extra = a.Answer, a.Answer
	a.AuthenticatedData, a.Authoritative = true, true
	return a, nil
}

// TestLiar asks a resolver that adds records of other names to its answer. Only the records that
// lead from the requested name to its addresses reach the sandbox, and only these are remembered.
func TestLiar(t *testing.T) {
	l := liar{[]string{
		"other.example.com. 60 IN A 203.0.113.66", "api.example.com. 0 IN CNAME one.example.org.",
		"two.example.org. 4000000 IN A 203.0.113.9", "two.example.org. 60 IN A 127.0.0.1", "two.example.org. 60 IN A 192.168.1.1",
		"one.example.org. 60 IN CNAME two.example.org.", "two.example.org. 60 IN TXT \"x\"", "two.example.org. 60 CH A 203.0.113.67",
	}}
	w := newWorld(t)
	_, _, _, g := newLink(t, wire.Options{Resolver: l, Dialer: w.Table, Egress: always(onlyAPI)})
	a := askFor(t, g, driver.GatewayIPv4, false, new(dns.Msg).SetQuestion("api.example.com.", dns.TypeA))
	var got []string
	for _, rr := range a.Answer {
		got = append(got, strings.ReplaceAll(rr.String(), "\t", " "))
	}
	want := []string{"api.example.com. 1 IN CNAME one.example.org.", "one.example.org. 60 IN CNAME two.example.org.", "two.example.org. 3600 IN A 203.0.113.9"}
	if !slices.Equal(got, want) || len(a.Ns)+len(a.Extra) != 0 || a.AuthenticatedData || a.Authoritative {
		t.Errorf("%v", a)
	}
	g.send("203.0.113.66", 443, tlsHello(sni("api.example.com"), alpn("smuggled")))
	if w.has("smuggled") {
		t.Error("an address of another name was learnt")
	}
	loop := liar{[]string{"api.example.com. 60 IN CNAME one.example.org.", "one.example.org. 60 IN CNAME api.example.com."}}
	_, _, _, h := newLink(t, wire.Options{Resolver: loop, Egress: always(onlyAPI)})
	if a := askFor(t, h, driver.GatewayIPv4, false, new(dns.Msg).SetQuestion("api.example.com.", dns.TypeA)); len(a.Answer) > 16 {
		t.Errorf("a circle gave %d records", len(a.Answer))
	}
}

// failing is a resolver that always fails.
type failing struct{}

func (failing) Exchange(context.Context, *dns.Msg) (*dns.Msg, error) {
	return nil, errors.New("no server")
}

func TestResolverFails(t *testing.T) {
	_, _, _, g := newLink(t, wire.Options{Resolver: failing{}, Egress: always(everything)})
	if a := askFor(t, g, driver.GatewayIPv4, false, new(dns.Msg).SetQuestion("api.example.com.", dns.TypeA)); a.Rcode != dns.RcodeServerFailure {
		t.Errorf("%v", a)
	}
}

// TestOtherServers sends questions to other name servers. Where everything is allowed, the wire
// answers them. Where a rule opens a server, that server itself is asked.
func TestOtherServers(t *testing.T) {
	w := newWorld(t)
	_, _, _, g := w.link(t, carrel.Network{Policy: &carrel.Policy{Default: "allow", Rules: []carrel.Rule{{Deny: []string{"*.example.net"}}}}}, wire.Options{})
	for _, server := range []string{evilIPv4, evilIPv6} {
		for _, tcp := range []bool{false, true} {
			if a := askFor(t, g, server, tcp, new(dns.Msg).SetQuestion("api.example.com.", dns.TypeA)); len(a.Answer) != 1 {
				t.Errorf("%s tcp %v: %v", server, tcp, a)
			}
			if a := askFor(t, g, server, tcp, new(dns.Msg).SetQuestion("secret.example.net.", dns.TypeA)); a.Rcode != dns.RcodeNameError {
				t.Errorf("%s tcp %v: a denied name gives %v", server, tcp, a)
			}
		}
	}
	if w.has("secret") {
		t.Error("a denied name left")
	}
	_, _, _, h := w.link(t, carrel.Network{Policy: &carrel.Policy{Rules: []carrel.Rule{{Allow: []string{"198.51.100.0/24"}}}}}, wire.Options{})
	h.datagram(evilIPv4, 53, []byte("a question of its own kind"))
	if !w.await("a question of its own kind") {
		t.Error("a server that a rule opens is not asked")
	}
}

// TestQuestionRate shows that the questions of a sandbox that floods the resolver are refused and
// not forwarded.
func TestQuestionRate(t *testing.T) {
	w := newWorld(t)
	_, _, _, g := w.link(t, onlyAPI, wire.Options{})
	c, err := g.dial(within(t, time.Minute), driver.GatewayIPv4, 53)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	conn := &dns.Conn{Conn: c}
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	const all = 3000
	go func() {
		for range all {
			if conn.WriteMsg(new(dns.Msg).SetQuestion("api.example.com.", dns.TypeA)) != nil {
				return
			}
		}
	}()
	refused := 0
	for range all {
		a, err := conn.ReadMsg()
		if err != nil {
			t.Fatal(err)
		}
		if a.Rcode == dns.RcodeRefused {
			refused++
		}
	}
	if refused == 0 {
		t.Errorf("none of %d questions was refused", all)
	}
}
