package wire_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/wire"
)

// socksProxy is a SOCKS5 server that records all requests and leads them to one place.
type socksProxy struct {
	mu       sync.Mutex
	asked    []string
	password string // demanded if not ""
	to       string
	code     byte // answered instead of success
}

func (s *socksProxy) start(t testing.TB) string {
	t.Helper()
	return serveEach(t, func(c net.Conn) { _ = s.serve(c) })
}

func (s *socksProxy) serve(c net.Conn) error {
	r := bufio.NewReader(c)
	read := func(n int) []byte { b := make([]byte, n); _, _ = io.ReadFull(r, b); return b }
	head := read(2)
	methods := read(int(head[1]))
	want := byte(0)
	if s.password != "" {
		want = 2
	}
	if len(methods) != 1 || methods[0] != want {
		_, err := c.Write([]byte{5, 0xff})
		return err
	}
	_, _ = c.Write([]byte{5, want})
	if want == 2 {
		read(1)
		user := read(int(read(1)[0]))
		password := read(int(read(1)[0]))
		if string(user) != "user" || string(password) != s.password {
			_, err := c.Write([]byte{1, 1})
			return err
		}
		_, _ = c.Write([]byte{1, 0})
	}
	kind := read(4)[3]
	var host string
	switch kind {
	case 1:
		host = net.IP(read(4)).String()
	case 4:
		host = net.IP(read(16)).String()
	default:
		host = string(read(int(read(1)[0])))
	}
	port := read(2)
	s.mu.Lock()
	s.asked = append(s.asked, fmt.Sprintf("%s:%d", host, int(port[0])<<8|int(port[1])))
	code := s.code
	s.mu.Unlock()
	if _, err := c.Write([]byte{5, code, 0, 3, 1, 'x', 0, 0}); err != nil || code != 0 {
		return err
	}
	out, err := net.Dial("tcp", s.to)
	if err != nil {
		return err
	}
	defer out.Close()
	go func() { _, _ = io.Copy(c, out) }()
	_, err = io.Copy(out, r)
	return err
}

func (s *socksProxy) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.asked, " ")
}

func TestEgressProxy(t *testing.T) {
	w := newWorld(t)
	s := &socksProxy{password: "hush", to: w.Dial[goodIPv4]}
	// Only the proxy is reachable, so a connection past it fails.
	at := s.start(t)
	w.Names["proxy.example.org"] = []string{"203.0.113.80"}
	w.Dial = map[string]string{"203.0.113.80:1080": at}
	n := carrel.Network{Policy: &carrel.Policy{Rules: []carrel.Rule{{Allow: []string{"api.example.com", "198.51.100.66", "2001:db8:bad::/64"}}}},
		EgressProxy: &carrel.EgressProxy{Address: "proxy.example.org:1080", Username: "user", Password: "hush"}}
	wr, id, _, g := w.link(t, n, wire.Options{})
	g.lookup("api.example.com")
	for _, c := range []struct {
		to   string
		port uint16
		say  []byte
	}{
		{goodIPv4, 443, tlsHello(sni("api.example.com"))}, {evilIPv4, 25, []byte("raw")}, {evilIPv6, 26, []byte("raw")},
		{goodIPv6, 80, []byte("GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n")},
	} {
		if got := g.send(c.to, c.port, c.say); got == "" {
			t.Errorf("%s:%d does not work", c.to, c.port)
		}
	}
	if got, want := s.all(), "api.example.com:443 198.51.100.66:25 2001:db8:bad::66:26 api.example.com:80"; got != want {
		t.Errorf("the proxy was asked for %q, want %q", got, want)
	}
	// Denied connections do not reach the proxy. UDP is refused.
	g.send(goodIPv4, 443, tlsHello(sni("evil.example.net")))
	g.datagram(evilIPv4, 9, []byte("datagram"))
	if strings.Contains(s.all(), "evil") || w.has("datagram") {
		t.Errorf("%q, %q", s.all(), w.text())
	}
	// It fails closed with a wrong password, with a proxy that is gone, and with one at a forbidden
	// address.
	for name, p := range map[string]carrel.EgressProxy{
		"wrong password":  {Address: "proxy.example.org:1080", Username: "user", Password: "loud"},
		"no password":     {Address: "203.0.113.80:1080"},
		"unknown name":    {Address: "nowhere.example.org:1080"},
		"nobody there":    {Address: "203.0.113.80:1081"},
		"this host":       {Address: "127.0.0.1:1080"},
		"a private place": {Address: "rebind.example.com:1080"},
	} {
		m := n
		m.EgressProxy = &p
		if err := wr.SetNetwork(id, ready(m)); err != nil {
			t.Fatal(name, err)
		}
		if got := g.send(evilIPv4, 25, []byte("closed")); got != "" {
			t.Errorf("%s: answered with %q", name, got)
		}
	}
	s.mu.Lock()
	s.code = 5
	s.mu.Unlock()
	if err := wr.SetNetwork(id, ready(n)); err != nil {
		t.Fatal(err)
	}
	if got := g.send(evilIPv4, 25, []byte("closed")); got != "" || w.has("closed") {
		t.Errorf("a proxy that refuses: %q", got)
	}
}
