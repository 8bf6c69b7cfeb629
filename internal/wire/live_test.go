package wire_test

import (
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/wire"
)

// greeter starts a server that speaks first, as mail servers and databases do.
func greeter(t testing.TB) string {
	t.Helper()
	return serveEach(t, func(c net.Conn) {
		_, _ = c.Write([]byte("220 hello\r\n"))
		_, _ = io.Copy(c, c)
	})
}

// serveEach starts a server that serves each connection, and returns its address on loopback.
func serveEach(t testing.TB, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(30 * time.Second))
				serve(c)
			})
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().String()
}

// notEvil allows everything except one name. Where a name is denied, all connections are inspected.
var notEvil = carrel.Network{Policy: &carrel.Policy{Default: "allow", Rules: []carrel.Rule{{Deny: []string{"*.example.net"}}}}}

// TestServerFirst shows that a connection whose server speaks first works although it is inspected,
// and that a sandbox can't avoid the inspection by waiting.
func TestServerFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dial["203.0.113.25"] = greeter(t)
	_, _, _, g := w.link(t, notEvil, wire.Options{})
	c, err := g.dial(within(t, time.Minute), "203.0.113.25", 25)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	b := make([]byte, 11)
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "220 hello\r\n" {
		t.Fatalf("%q, %v", b, err)
	}
	if got := say(t, c, "EHLO example.com\r\n"); got != "EHLO example.com\r\n" {
		t.Errorf("%q", got)
	}
	// These servers say nothing until they are spoken to. The sandbox waits longer than the wire
	// waits for the sandbox's first bytes.
	for _, server := range []string{evilIPv4, goodIPv4} {
		late, err := g.dial(within(t, time.Minute), server, 443)
		if err != nil {
			t.Fatal(err)
		}
		defer late.Close()
		_ = late.SetReadDeadline(time.Now().Add(700 * time.Millisecond))
		if n, err := late.Read(b); !isTimeout(err) {
			t.Errorf("%s said %q, %v", server, b[:n], err)
		}
		_ = late.SetDeadline(time.Now().Add(time.Minute))
		if server == evilIPv4 {
			_, _ = late.Write(tlsHello(sni("late.example.net")))
			if _, err := late.Read(b); err == nil || isTimeout(err) {
				t.Errorf("a denied name after a pause gave %v", err)
			}
		} else if _, _ = late.Write(tlsHello(sni("late.example.org"))); !w.await("late.example.org") {
			t.Error("an allowed name after a pause does not arrive")
		}
	}
	if w.has("late.example.net") {
		t.Error("a denied name left after a pause")
	}
}

// TestSilence shows that the wire ends a connection on which the sandbox sends nothing, or too
// little, and that no byte of it reaches a server.
func TestSilence(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var log decisions
	_, _, _, g := w.link(t, onlyAPI, wire.Options{Audit: log.add})
	g.lookup("api.example.com")
	var wg sync.WaitGroup
	for _, first := range []string{"", "\x16\x03\x01", "GE"} {
		wg.Go(func() {
			if got := g.send(goodIPv4, 443, []byte(first)); got != "" {
				t.Errorf("%q was answered with %q", first, got)
			}
		})
	}
	wg.Wait()
	if len(log.all()) < 3 || w.has("GE") {
		t.Errorf("log: %+v", log.all())
	}
}

// TestRelearn replaces the stack, as a restart of the daemon does. The new stack knows no
// addresses, but the addresses that the sandbox's programs hold must still work.
func TestRelearn(t *testing.T) {
	w := newWorld(t)
	host, fd := pair(t, 8<<20)
	kept, err := unix.FcntlInt(host.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	g := newGuest(t, fd, testMTU)
	spec := driver.LinkSpec{ID: carrel.NewID(), MTU: testMTU}
	attach := func(f *os.File) *wire.Wire {
		wr := wire.New(wire.Options{Resolver: w, Dialer: w.Table, Egress: always(onlyAPI)})
		t.Cleanup(func() { wr.Close() })
		if _, err := wr.Attach(t.Context(), spec, f); err != nil {
			t.Fatal(err)
		}
		return wr
	}
	first := attach(host)
	g.lookup("api.example.com")
	if got := g.send(goodIPv4, 443, tlsHello(sni("api.example.com"), alpn("before"))); got != "ok" {
		t.Fatalf("before: %q", got)
	}
	first.Close()
	attach(os.NewFile(uintptr(kept), "kept"))
	for _, a := range []string{goodIPv4, goodIPv6} {
		if got := g.send(a, 443, tlsHello(sni("api.example.com"), alpn("after"))); got != "ok" {
			t.Errorf("after, %s: %q", a, got)
		}
		if got := g.send(a, 80, []byte("GET /after HTTP/1.1\r\nHost: api.example.com\r\n\r\n")); len(got) < 15 || got[:15] != "HTTP/1.1 200 OK" {
			t.Errorf("HTTP after, %s: %q", a, got)
		}
	}
	g.send(evilIPv4, 443, tlsHello(sni("api.example.com"), alpn("stray")))
	g.send(evilIPv4, 443, tlsHello(sni("stray.example.net")))
	if w.has("stray") {
		t.Error("an address that is not the name's was learnt")
	}
}

// TestSetNetwork shows that connections which the new policy forbids are cut, and all others go on.
func TestSetNetwork(t *testing.T) {
	w := newWorld(t)
	rules := func(allow ...string) carrel.Network {
		return carrel.Network{Policy: &carrel.Policy{Rules: []carrel.Rule{{Allow: allow}}}}
	}
	wr, id, _, g := w.link(t, rules("api.example.com", "www.example.com", "198.51.100.0/24"), wire.Options{})
	g.lookup("api.example.com")
	g.lookup("www.example.com")
	open := func(to string, first []byte) *net.Conn {
		c, err := g.dial(within(t, time.Minute), to, 443)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		conn := net.Conn(c)
		if !works(conn, first) {
			t.Fatalf("%s does not work", to)
		}
		return &conn
	}
	api := open(goodIPv4, tlsHello(sni("api.example.com")))
	www := open(goodIPv4, tlsHello(sni("www.example.com")))
	raw := open(evilIPv4, []byte("raw"))
	for _, step := range []struct {
		allow []string
		works map[*net.Conn]bool
	}{
		{[]string{"*.example.com", "198.51.100.0/24"}, map[*net.Conn]bool{api: true, www: true, raw: true}},
		{[]string{"api.example.com", "198.51.100.66"}, map[*net.Conn]bool{api: true, www: false, raw: true}},
		{[]string{"api.example.com"}, map[*net.Conn]bool{api: true, raw: false}},
		{[]string{"www.example.com"}, map[*net.Conn]bool{api: false}},
	} {
		if err := wr.SetNetwork(id, ready(rules(step.allow...))); err != nil {
			t.Fatal(err)
		}
		for c, want := range step.works {
			if want && !works(*c, []byte("more")) || !want && !ends(*c) {
				t.Errorf("with %v a connection works: %v", step.allow, !want)
			}
		}
	}
	// Connections that were not inspected are cut when names decide.
	if err := wr.SetNetwork(id, ready(everything)); err != nil {
		t.Fatal(err)
	}
	unseen := open(goodIPv4, tlsHello(sni("api.example.com")))
	if err := wr.SetNetwork(id, ready(rules("api.example.com"))); err != nil {
		t.Fatal(err)
	}
	if !ends(*unseen) {
		t.Error("a connection that nobody looked at goes on")
	}
	// The same holds inside HTTP: for the next request, and for a request that is still running.
	if err := wr.SetNetwork(id, ready(rules("api.example.com"))); err != nil {
		t.Fatal(err)
	}
	kept, err := g.dial(within(t, time.Minute), goodIPv4, 80)
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	get := []byte("GET /kept HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
	if !works(kept, get) {
		t.Fatal("HTTP does not work")
	}
	if err := wr.SetNetwork(id, ready(rules("www.example.com"))); err != nil {
		t.Fatal(err)
	}
	if !ends(kept) {
		t.Error("HTTP goes on")
	}
}

// works reports whether a connection carries bytes in both directions.
func works(c net.Conn, text []byte) bool {
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.Write(text); err != nil {
		return false
	}
	_, err := c.Read(make([]byte, 4<<10))
	return err == nil
}

// ends reports whether a connection is cut soon.
func ends(c net.Conn) bool {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if !works(c, []byte("more")) {
			return true
		}
	}
	return false
}

// TestFallback shows that a name is reached by any of its addresses that answers.
func TestFallback(t *testing.T) {
	w := newWorld(t)
	w.Names["many.example.com"] = []string{"203.0.113.101", "203.0.113.102", "2001:db8::101", goodIPv6}
	_, _, _, g := w.link(t, carrel.Network{Policy: &carrel.Policy{Rules: []carrel.Rule{{Allow: []string{"many.example.com"}}}}}, wire.Options{})
	got := g.lookup("many.example.com")
	if !slices.Contains(got, "203.0.113.101") {
		t.Fatal(got)
	}
	if got := g.send("203.0.113.101", 443, tlsHello(sni("many.example.com"))); got != "ok" {
		t.Errorf("%q", got)
	}
}

// TestPing shows that an echo request to the outside gets no answer.
func TestPing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, _, _, g := w.link(t, everything, wire.Options{})
	if g.ping(t, goodIPv4, time.Second) {
		t.Error("the outside answers")
	}
	if !g.ping(t, driver.GatewayIPv4, time.Minute) {
		t.Error("the gateway does not answer: the test can't fail")
	}
}
