package wire_test

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/wire"
)

// bypass is a way to get a mark out although only api.example.com is allowed.
type bypass struct {
	name string
	try  func(t *testing.T, g *guest, mark string)
	open *carrel.Network // the policy under which it works; nil is everything
}

func raw(to string, port uint16) func(*testing.T, *guest, string) {
	return func(_ *testing.T, g *guest, mark string) { g.send(to, port, []byte(mark+"\r\n")) }
}

// toGood sends the bytes of make to an address that the sandbox got for the allowed name.
func toGood(port uint16, make func(mark string) []byte) func(*testing.T, *guest, string) {
	return func(t *testing.T, g *guest, mark string) {
		for _, a := range g.lookup("api.example.com") {
			g.send(a, port, make(mark))
		}
	}
}

func question(name func(mark string) string, kind, class uint16) func(*testing.T, *guest, string) {
	return func(t *testing.T, g *guest, mark string) {
		c := &dns.Conn{Conn: packetConn{g.udp(driver.GatewayIPv4, 53)}, UDPSize: 4096}
		q := new(dns.Msg).SetQuestion(name(mark), kind)
		q.Question[0].Qclass = class
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if err := c.WriteMsg(q); err != nil {
			t.Fatal(err)
		}
		if _, err := c.ReadMsg(); err != nil {
			t.Fatal(err)
		}
	}
}

func evilName(mark string) string { return mark + ".evil.example.net." }

func packed(t *testing.T, name string) []byte {
	b, err := new(dns.Msg).SetQuestion(name, dns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func pieces(b []byte, size int) [][]byte { return slices.Collect(slices.Chunk(b, size)) }

var bypasses = []bypass{
	{"raw IPv4", raw(evilIPv4, 80), nil},
	{"raw IPv4, TLS port", raw(evilIPv4, 443), nil},
	{"raw IPv6", raw(evilIPv6, 443), nil},
	{"DNS over TLS", raw(evilIPv4, 853), nil},
	{"NAT64 of the address", raw("64:ff9b::c633:6442", 443), nil},
	{"6to4 of the address", raw("2002:c633:6442::1", 443), nil},
	{"UDP", func(_ *testing.T, g *guest, mark string) { g.datagram(evilIPv4, 4000, []byte(mark)) }, nil},
	{"UDP over IPv6", func(_ *testing.T, g *guest, mark string) { g.datagram(evilIPv6, 4000, []byte(mark)) }, nil},
	{"QUIC to an allowed name", func(_ *testing.T, g *guest, mark string) {
		for _, a := range g.lookup("api.example.com") {
			g.datagram(a, 443, []byte("\xc0\x00\x00\x00\x01"+mark))
		}
	}, nil},
	{"a question for a name", question(evilName, dns.TypeA, dns.ClassINET), nil},
	{"a question for text", question(evilName, dns.TypeTXT, dns.ClassINET), nil},
	{"a question under an allowed name", question(func(m string) string { return m + ".api.example.com." }, dns.TypeA, dns.ClassINET), nil},
	{"a question for a pointer", question(func(m string) string { return m + ".in-addr.arpa." }, dns.TypePTR, dns.ClassINET), nil},
	{"a question to another server", func(t *testing.T, g *guest, mark string) {
		g.datagram(evilIPv4, 53, packed(t, evilName(mark)))
	}, nil},
	{"a question to another server over TCP", func(t *testing.T, g *guest, mark string) {
		b := packed(t, evilName(mark))
		g.send(evilIPv4, 53, append([]byte{byte(len(b) >> 8), byte(len(b))}, b...))
	}, nil},
	{"another server name", toGood(443, func(m string) []byte { return tlsHello(sni(m + ".example.net")) }), nil},
	{"no server name", toGood(443, func(m string) []byte { return tlsHello(alpn(m)) }), nil},
	{"two server names", toGood(443, func(m string) []byte { return tlsHello(sni("api.example.com"), sni(m+".example.net")) }), nil},
	{"a server name with more after it", toGood(443, func(m string) []byte { return tlsHello(sni("api.example.com\x00" + m)) }), nil},
	{"encrypted hello", toGood(443, func(m string) []byte {
		return tlsHello(sni("api.example.com"), tlsExtension(0xfe0d, []byte(m)))
	}), nil},
	{"allowed server name, other address", func(_ *testing.T, g *guest, mark string) {
		g.send(evilIPv4, 443, tlsHello(sni("api.example.com"), alpn(mark)))
	}, nil},
	{"allowed server name, other address, after a question", func(_ *testing.T, g *guest, mark string) {
		g.lookup("api.example.com")
		g.send(evilIPv6, 443, tlsHello(sni("api.example.com"), alpn(mark)))
	}, nil},
	{"fragmented hello", toGood(443, func(m string) []byte { return inRecords(tlsHello(sni(m+".example.net")), 3) }), nil},
	{"slow hello", func(t *testing.T, g *guest, mark string) {
		g.lookup("api.example.com")
		g.send(goodIPv4, 443, pieces(tlsHello(sni(mark+".example.net")), 1)...)
	}, nil},
	{"hello for another, from a real client", toGood(443, func(m string) []byte {
		return realHello(&tls.Config{ServerName: m + ".example.net"})
	}), nil},
	{"SSH on the TLS port", toGood(443, func(m string) []byte { return []byte("SSH-2.0-" + m + "\r\n") }), nil},
	{"binary", toGood(443, func(m string) []byte { return []byte("\x00\x01" + m) }), nil},
	{"nearly TLS", toGood(443, func(m string) []byte { return []byte("\x16\x04\x01" + m) }), nil},
	{"old TLS", toGood(443, func(m string) []byte { return []byte("\x80\x2e\x01\x03\x01" + m) }), nil},
	{"HTTP for another host", toGood(80, func(m string) []byte {
		return []byte("GET / HTTP/1.1\r\nHost: " + m + ".example.net\r\n\r\n")
	}), nil},
	{"HTTP after empty lines", toGood(80, func(m string) []byte {
		return []byte("\r\n\r\nGET / HTTP/1.1\r\nHost: " + m + ".example.net\r\n\r\n")
	}), nil},
	{"HTTP for no host", toGood(80, func(m string) []byte { return []byte("GET /" + m + " HTTP/1.0\r\n\r\n") }), nil},
	{"HTTP for two hosts", toGood(80, func(m string) []byte {
		return []byte("GET / HTTP/1.1\r\nHost: api.example.com\r\nHost: " + m + ".example.net\r\n\r\n")
	}), nil},
	{"HTTP for a whole address", toGood(80, func(m string) []byte {
		return []byte("GET http://" + m + ".example.net/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
	}), nil},
	{"CONNECT", toGood(80, func(m string) []byte {
		return []byte("CONNECT " + m + ".example.net:443 HTTP/1.1\r\nHost: " + m + ".example.net:443\r\n\r\n")
	}), nil},
	{"HTTP without a version", toGood(80, func(m string) []byte { return []byte("GET /" + m + "\r\n\r\n") }), nil},
	{"HTTP for the host on another address", func(_ *testing.T, g *guest, mark string) {
		g.send(evilIPv4, 80, []byte("GET /"+mark+" HTTP/1.1\r\nHost: api.example.com\r\n\r\n"))
	}, nil},
	{"a name that leads to private space", func(_ *testing.T, g *guest, mark string) {
		g.lookup("rebind.example.com")
		for _, a := range []string{"10.0.0.5", "fd00::5"} {
			g.send(a, 443, tlsHello(sni("rebind.example.com"), alpn(mark)))
		}
	}, &everythingPrivate},
}

// TestBypasses tries each way twice. Under the policy, no mark may arrive. Where everything is
// allowed, each mark must arrive, because otherwise the test could not fail.
func TestBypasses(t *testing.T) {
	for i, b := range bypasses {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			mark := fmt.Sprintf("mark%dx", i)
			shut := newWorld(t)
			var log decisions
			_, _, _, g := shut.link(t, onlyAPI, wire.Options{Audit: log.add})
			b.try(t, g, mark)
			if shut.has(mark) {
				t.Errorf("it arrived:\n%s", shut.text())
			}
			if !log.refused() {
				t.Errorf("no refusal in the log: %+v", log.all())
			}
			open := newWorld(t)
			n := everything
			if b.open != nil {
				n = *b.open
			}
			_, _, _, h := open.link(t, n, wire.Options{})
			b.try(t, h, mark)
			if !open.await(mark) {
				t.Errorf("with everything allowed it does not arrive: the test can't fail")
			}
		})
	}
}

// TestNeverOpen tries connections that no policy can allow.
func TestNeverOpen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, _, _, g := w.link(t, everythingPrivate, wire.Options{})
	g.lookup("rebind.example.com")
	for _, to := range []string{"127.0.0.1", "169.254.169.254", "64:ff9b::7f00:1", "2002:7f00:1::1", "::ffff:0:7f00:1", "fe80::1", "fec0::1", "224.0.0.1"} {
		ctx := within(t, 500*time.Millisecond)
		if c, err := g.dial(ctx, to, 443); err == nil {
			c.Close()
			t.Errorf("connected to %s", to)
		}
	}
	for _, a := range g.lookup("rebind.example.com") {
		if a != "10.0.0.5" && a != "fd00::5" {
			t.Errorf("a name leads to %s", a)
		}
	}
	if strings.Contains(w.text(), "\x16\x03") {
		t.Errorf("something arrived: %s", w.text())
	}
}

// TestAllowed shows that allowed connections work, in all the shapes that are refused for other
// names.
func TestAllowed(t *testing.T) {
	hello := func(m string) []byte { return tlsHello(sni("api.example.com"), alpn(m)) }
	for i, b := range []bypass{
		{"TLS", toGood(443, hello), nil},
		{"TLS in capitals", toGood(443, func(m string) []byte { return tlsHello(sni("API.example.COM"), alpn(m)) }), nil},
		{"TLS on any port", toGood(8443, hello), nil},
		{"fragmented", toGood(443, func(m string) []byte { return inRecords(hello(m), 2) }), nil},
		{"slow", func(_ *testing.T, g *guest, mark string) {
			g.lookup("api.example.com")
			g.send(goodIPv6, 443, pieces(hello(mark), 1)...)
		}, nil},
		{"with more behind it", toGood(443, func(m string) []byte { return append(tlsHello(sni("api.example.com")), m...) }), nil},
		{"a real client", toGood(443, func(m string) []byte {
			return realHello(&tls.Config{ServerName: "api.example.com", NextProtos: []string{m}})
		}), nil},
		{"HTTP", toGood(80, func(m string) []byte { return []byte("GET /" + m + " HTTP/1.1\r\nHost: api.example.com\r\n\r\n") }), nil},
		{"a question", question(func(string) string { return "aPi.example.com." }, dns.TypeA, dns.ClassINET), nil},
	} {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			_, _, _, g := w.link(t, onlyAPI, wire.Options{})
			mark := fmt.Sprintf("mark%dx", i)
			b.try(t, g, mark)
			if b.name == "a question" {
				mark = "api.example.com"
			}
			if !w.await(mark) {
				t.Errorf("it does not arrive")
			}
			if strings.Contains(w.text(), "aPi") {
				t.Error("the spelling of a question leaves")
			}
		})
	}
}
