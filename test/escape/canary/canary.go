// Package canary is the world outside a sandbox, for tests: servers on loopback that record every
// connection, byte and packet that reaches them. They are as helpful as an attacker's own servers
// would be: they finish every handshake, for any name, agree to every upgrade, and answer
// everything.
package canary

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"testing"
	"time"

	"crypto/tls"

	"github.com/carrel-dev/carrel/internal/pki"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// Canary is one server: all TCP and UDP ports of some addresses.
type Canary struct {
	Name string
	// Address is the canary's real address: TCP and UDP on the same port.
	Address string

	ca  *pki.CA
	tcp net.Listener
	udp net.PacketConn

	mu     sync.Mutex
	seen   [][]byte // one entry per connection, packet and note
	passed string   // the last barrier
	open   map[net.Conn]struct{}
	closed bool
	busy   sync.WaitGroup
}

// maxSeen bounds the recorded bytes of one connection.
const maxSeen = 8 << 20

// New starts a canary at a host address, "127.0.0.1" or "[::1]", until the test ends.
func New(t testing.TB, name, host string, ca *pki.CA) *Canary {
	t.Helper()
	c := &Canary{Name: name, ca: ca, open: make(map[net.Conn]struct{})}
	var err error
	for range 100 { // until a port is free for both
		if c.tcp, err = net.Listen("tcp", host+":0"); err != nil {
			t.Fatal(err)
		}
		c.Address = c.tcp.Addr().String()
		if c.udp, err = net.ListenPacket("udp", c.Address); err == nil {
			break
		}
		_ = c.tcp.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	c.busy.Go(func() { c.Serve(c.tcp) })
	c.busy.Go(c.servePackets)
	t.Cleanup(c.close)
	return c
}

// NewOn starts a canary that serves a listener of the test's own.
func NewOn(t testing.TB, name string, l net.Listener) *Canary {
	c := &Canary{Name: name, Address: l.Addr().String(), tcp: l, open: make(map[net.Conn]struct{})}
	c.busy.Go(func() { c.Serve(l) })
	t.Cleanup(c.close)
	return c
}

func (c *Canary) close() {
	_ = c.tcp.Close()
	if c.udp != nil {
		_ = c.udp.Close()
	}
	c.mu.Lock()
	c.closed = true
	for conn := range c.open {
		_ = conn.Close()
	}
	c.mu.Unlock()
	c.busy.Wait()
}

// note begins a new entry and returns its index.
func (c *Canary) note(b []byte) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, bytes.Clone(b))
	return len(c.seen) - 1
}

func (c *Canary) add(place int, b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if place < len(c.seen) && len(c.seen[place])+len(b) <= maxSeen {
		c.seen[place] = append(c.seen[place], b...)
	}
}

// Seen returns everything that arrived: one entry for each connection and packet, and one more for
// the contents of TLS.
func (c *Canary) Seen() [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([][]byte, len(c.seen))
	for i, b := range c.seen {
		out[i] = bytes.Clone(b)
	}
	return out
}

// barrier is what Settle sends.
const barrier = "canary: barrier "

// Settle waits until everything sent to the canary so far is recorded. The senders have gone, so it
// also waits until every connection has ended.
func (c *Canary) Settle(t testing.TB) {
	t.Helper()
	if c.udp != nil {
		conn, err := net.Dial("udp", c.Address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		own := barrier + conn.LocalAddr().String()
		c.until(t, "its own packet has come", func() bool {
			_, _ = io.WriteString(conn, own)
			return c.passed == own
		})
	}
	c.until(t, "all connections have ended", func() bool { return len(c.open) == 0 })
}

// Forget drops everything.
func (c *Canary) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = nil
}

func (c *Canary) until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	testenv.Eventually(t, "canary "+c.Name+": "+what, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return ok()
	})
}

// Serve serves a listener until it is closed.
func (c *Canary) Serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		c.mu.Lock()
		c.open[conn] = struct{}{}
		closed := c.closed
		c.mu.Unlock()
		c.busy.Go(func() {
			defer func() {
				_ = conn.Close()
				c.mu.Lock()
				delete(c.open, conn)
				c.mu.Unlock()
			}()
			if !closed {
				c.serveConn(&recorder{Conn: conn, canary: c, place: c.note(nil)})
			}
		})
	}
}

func (c *Canary) servePackets() {
	buf := make([]byte, 1<<16)
	for {
		n, from, err := c.udp.ReadFrom(buf)
		if err != nil {
			return
		}
		if bytes.HasPrefix(buf[:n], []byte(barrier)) {
			c.mu.Lock()
			c.passed = string(buf[:n])
			c.mu.Unlock()
			continue
		}
		c.note(buf[:n])
		answer := []byte("ok\n")
		if n >= 12 && buf[2]&0xf8 == 0 { // a DNS question: answer with itself
			answer = bytes.Clone(buf[:n])
			answer[2] |= 0x80
		}
		_, _ = c.udp.WriteTo(answer, from)
	}
}

// recorder records everything that is read through it.
type recorder struct {
	net.Conn
	canary *Canary
	place  int
	ahead  []byte // to be read again
}

func (r *recorder) Read(b []byte) (int, error) {
	if len(r.ahead) > 0 {
		n := copy(b, r.ahead)
		r.ahead = r.ahead[n:]
		return n, nil
	}
	n, err := r.Conn.Read(b)
	r.canary.add(r.place, b[:n])
	return n, err
}

func (c *Canary) serveConn(r *recorder) {
	first := make([]byte, 1<<16)
	n, err := r.Read(first)
	if err != nil {
		return
	}
	r.ahead = first[:n]
	if first[0] != 0x16 || c.ca == nil {
		c.servePlain(r)
		return
	}
	conn := tls.Server(r, &tls.Config{NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if h.ServerName == "" {
				return c.ca.Leaf("unnamed.example.com")
			}
			return c.ca.Leaf(h.ServerName)
		}})
	if conn.Handshake() != nil {
		_, _ = io.Copy(io.Discard, r) // reading records everything that comes
		return
	}
	if conn.ConnectionState().NegotiatedProtocol == "h2" {
		c.serveH2(conn)
		return
	}
	c.servePlain(&recorder{Conn: conn, canary: c, place: c.note(nil)})
}

// servePlain answers everything that comes.
func (c *Canary) servePlain(conn net.Conn) {
	var pending []byte
	buf := make([]byte, 1<<16)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		pending = append(pending, buf[:n]...)
		head, rest, complete := bytes.Cut(pending, []byte("\r\n\r\n"))
		switch lower := bytes.ToLower(head); {
		case !bytes.Contains(head, []byte(" ")) && !complete:
			_, _ = io.WriteString(conn, "ok\n")
			pending = nil
			continue
		case !complete:
			if len(pending) > 1<<20 {
				pending = nil
			}
			continue
		case bytes.HasPrefix(head, []byte("PRI * HTTP/2")):
			_, _ = conn.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}) // SETTINGS
		case bytes.Contains(lower, []byte("upgrade: ")):
			_, protocol, _ := bytes.Cut(lower, []byte("upgrade: "))
			protocol, _, _ = bytes.Cut(protocol, []byte("\r\n"))
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", protocol)
		default:
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n")
		}
		pending = rest
	}
}

// serveH2 serves one connection that agreed on HTTP/2.
func (c *Canary) serveH2(conn net.Conn) {
	done := make(chan struct{})
	var once sync.Once
	l := &oneConn{conn: conn, done: done}
	s := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			dump, _ := httputil.DumpRequest(r, true)
			c.note(dump)
			_, _ = io.WriteString(w, "ok\n")
		}),
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateClosed {
				once.Do(func() { close(done) })
			}
		},
		ReadHeaderTimeout: time.Minute,
	}
	_ = s.Serve(l)
}

// oneConn is a listener with one connection.
type oneConn struct {
	conn net.Conn
	done chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.done
	return nil, net.ErrClosed
}
func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }
