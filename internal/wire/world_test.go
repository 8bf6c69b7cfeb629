package wire_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/wire"
)

// Addresses of the outside. All lead to the same canary.
const (
	goodIPv4, goodIPv6 = "203.0.113.9", "2001:db8::9"
	evilIPv4, evilIPv6 = "198.51.100.66", "2001:db8:bad::66"
)

// world is an outside that records everything that arrives: the bytes of connections and datagrams,
// and the names in questions.
type world struct {
	*wire.Table
	t testing.TB

	mu   sync.Mutex
	seen bytes.Buffer
	came chan struct{} // closed and replaced when something arrives
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, came: make(chan struct{})}
	l, p := sameport(t)
	to := l.Addr().String()
	w.Table = &wire.Table{
		Names: map[string][]string{
			"api.example.com": {goodIPv4, goodIPv6}, "www.example.com": {"api.example.com"}, "*.example.net": {evilIPv4, evilIPv6},
			"rebind.example.com": {"10.0.0.5", "127.0.0.1", "169.254.169.254", "fd00::5"}, "half.example.com": {"10.0.0.5", goodIPv4},
		},
		Dial: map[string]string{},
	}
	for _, a := range []string{goodIPv4, goodIPv6, evilIPv4, evilIPv6, "10.0.0.5", "127.0.0.1", "169.254.169.254", "fd00::5",
		"64:ff9b::c633:6442", "2002:c633:6442::1"} {
		w.Dial[a] = to
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { w.collect(c) })
		}
	})
	wg.Go(func() {
		b := make([]byte, 1<<16)
		for {
			n, from, err := p.ReadFrom(b)
			if err != nil {
				return
			}
			w.note(b[:n])
			_, _ = p.WriteTo([]byte("ok"), from)
		}
	})
	t.Cleanup(func() { l.Close(); p.Close(); wg.Wait() })
	return w
}

// sameport listens for TCP and UDP on one port.
func sameport(t testing.TB) (net.Listener, net.PacketConn) {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if p, err := net.ListenPacket("udp", l.Addr().String()); err == nil {
			return l, p
		}
		l.Close()
	}
	t.Fatal("no port is free for both TCP and UDP")
	return nil, nil
}

// collect records the bytes of a connection and answers each piece.
func (w *world) collect(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	b := make([]byte, 1<<16)
	var all []byte
	for {
		n, err := c.Read(b)
		all = append(all, b[:n]...)
		w.note(b[:n])
		w.note(joined(all))
		if err != nil {
			return
		}
		answer := "ok"
		if bytes.Contains(all, []byte(" HTTP/1.")) {
			answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
		}
		_, _ = c.Write([]byte(answer))
	}
}

// joined returns the contents of TLS records.
func joined(b []byte) []byte {
	var out []byte
	for len(b) > 5 && b[0] == 22 {
		n := min(int(binary.BigEndian.Uint16(b[3:])), len(b)-5)
		out = append(out, b[5:5+n]...)
		b = b[5+n:]
	}
	return out
}

func (w *world) note(b []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen.Write(b)
	close(w.came)
	w.came = make(chan struct{})
}

// Exchange records the question, and answers from the table.
func (w *world) Exchange(ctx context.Context, q *dns.Msg) (*dns.Msg, error) {
	w.note([]byte(q.String()))
	return w.Table.Exchange(ctx, q)
}

// text is all that arrived.
func (w *world) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen.String()
}

// has reports whether text arrived, in upper or lower case.
func (w *world) has(text string) bool {
	return strings.Contains(strings.ToLower(w.text()), strings.ToLower(text))
}

// await waits until text arrived.
func (w *world) await(text string) bool {
	for timeout := time.After(time.Minute); ; {
		w.mu.Lock()
		came := w.came
		w.mu.Unlock()
		if w.has(text) {
			return true
		}
		select {
		case <-came:
		case <-timeout:
			return false
		}
	}
}

// link attaches a sandbox to this world.
func (w *world) link(t testing.TB, n carrel.Network, opts wire.Options) (*wire.Wire, carrel.ID, driver.Link, *guest) {
	t.Helper()
	opts.Resolver, opts.Dialer, opts.Egress = w, w.Table, always(n)
	return newLink(t, opts)
}

// onlyAPI allows HTTP and TLS to one name and nothing else. everything allows everything.
var (
	onlyAPI = carrel.Network{Policy: &carrel.Policy{Rules: []carrel.Rule{
		{Name: "api", Allow: []string{"api.example.com", "rebind.example.com", "half.example.com"}}}}}
	everything = carrel.Network{Policy: &carrel.Policy{Default: "allow"}}
	// everythingPrivate also allows private addresses.
	everythingPrivate = carrel.Network{Policy: &carrel.Policy{Default: "allow", Rules: []carrel.Rule{{Allow: []string{"10.0.0.0/8", "fd00::/64"}}}}}
)

// loopbackTime is how long a connection to loopback is tried. The stack answers nothing there.
const loopbackTime = 3 * time.Second

// send connects, writes and waits for an answer or the end.
func (g *guest) send(to string, port uint16, pieces ...[]byte) string {
	limit := time.Minute
	if net.ParseIP(to).IsLoopback() {
		limit = loopbackTime
	}
	c, err := g.dial(within(g.t, limit), to, port)
	if err != nil {
		return ""
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	for _, p := range pieces {
		if _, err := c.Write(p); err != nil {
			return ""
		}
	}
	b := make([]byte, 4<<10)
	n, _ := c.Read(b)
	return string(b[:n])
}

// datagram sends one datagram and waits for an answer or an error.
func (g *guest) datagram(to string, port uint16, text []byte) {
	c := g.udp(to, port)
	for range 3 { // the next call reports the error
		_ = c.SetDeadline(time.Now().Add(time.Second))
		if _, err := c.Write(text); err != nil {
			return
		}
		if _, err := c.Read(make([]byte, 10)); err == nil {
			return
		}
	}
}

// lookup asks for a name as programs do, and returns its addresses.
func (g *guest) lookup(name string) []string {
	var out []string
	for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
		for _, rr := range ask(g.t, g, dns.Fqdn(name), kind).Answer {
			switch rr := rr.(type) {
			case *dns.A:
				out = append(out, rr.A.String())
			case *dns.AAAA:
				out = append(out, rr.AAAA.String())
			}
		}
	}
	return out
}

// tlsHello builds a client's first message by hand.
func tlsHello(extensions ...[]byte) []byte {
	all := bytes.Join(extensions, nil)
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, 0, 0, 2, 0x13, 1, 1, 0, byte(len(all)>>8), byte(len(all)))
	body = append(body, all...)
	m := append([]byte{1, byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}, body...)
	return append([]byte{22, 3, 1, byte(len(m) >> 8), byte(len(m))}, m...)
}

func tlsExtension(kind int, data []byte) []byte {
	return append([]byte{byte(kind >> 8), byte(kind), byte(len(data) >> 8), byte(len(data))}, data...)
}

func sni(name string) []byte {
	n := len(name)
	return tlsExtension(0, append([]byte{byte((n + 3) >> 8), byte(n + 3), 0, byte(n >> 8), byte(n)}, name...))
}

func alpn(name string) []byte {
	n := len(name)
	return tlsExtension(16, append([]byte{byte((n + 1) >> 8), byte(n + 1), byte(n)}, name...))
}

// inRecords cuts a hello into records of at most size bytes.
func inRecords(b []byte, size int) []byte {
	message := b[5:]
	var out []byte
	for piece := range slices.Chunk(message, size) {
		out = binary.BigEndian.AppendUint16(append(out, 22, 3, 1), uint16(len(piece)))
		out = append(out, piece...)
	}
	return out
}

// realHello returns the hello of crypto/tls.
func realHello(c *tls.Config) []byte {
	a, b := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = tls.Client(a, c).Handshake()
	}()
	buf := make([]byte, 1<<16)
	n, _ := b.Read(buf)
	b.Close()
	a.Close()
	<-done
	return buf[:n]
}
