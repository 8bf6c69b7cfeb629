package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
)

// StrictListener wraps the connections of a listener. They carry HTTP/1, in the clear or after the
// end of TLS. It stops requests that two servers may read in two ways: one with both a length and
// chunks, a folded header, a line that ends in half of a CRLF, a second length or host. net/http
// accepts some of them and corrects them, which is right for one server and wrong for a chain of
// them. Each head is held back until it was judged. The server also needs [StrictContext] and
// [StrictHandler]. HTTP/2 passes unchanged.
func StrictListener(l net.Listener) net.Listener { return strictListener{l} }

type strictListener struct{ net.Listener }

// Accept implements net.Listener.
func (l strictListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if t, ok := c.(*tls.Conn); ok {
		if t.ConnectionState().NegotiatedProtocol == "h2" {
			return c, nil // HTTP/2 has frames: it can't be read in two ways
		}
		state := t.ConnectionState()
		return &strictConn{Conn: c, tls: &state}, nil
	}
	return &strictConn{Conn: c}, nil
}

// maxHead is how many bytes of a head are held back. The server's own bound is lower, so the server
// refuses a longer head with 431.
const maxHead = 128 << 10

// refusedTarget replaces the target of a refused request. StrictHandler answers it.
const refusedTarget = "/.carrel/refused"

const cannedRequest = "GET " + refusedTarget + " HTTP/1.1\r\nHost: refused\r\nConnection: close\r\n\r\n"

var errMalformed = errors.New("malformed request body")

// strictConn hands on the client's bytes after they were judged. Like any connection of net/http's
// server, it is read by one goroutine at a time.
type strictConn struct {
	net.Conn
	tls *tls.ConnectionState // nil in the clear

	frame framing
	in    []byte // read, not judged
	out   []byte // judged, not handed on
	err   error  // after out
	spare []byte // used when the reader's buffer is too small

	refused  atomic.Pointer[string] // why
	upgrades atomic.Bool            // the last request asks for another protocol
}

// Read implements net.Conn.
func (c *strictConn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if len(c.out) > 0 {
			n := copy(p, c.out)
			if c.out = c.out[n:]; len(c.out) == 0 {
				c.out = nil
			}
			return n, nil
		}
		if c.err != nil {
			return 0, c.err
		}
		if c.refused.Load() != nil {
			return c.drain()
		}
		if len(c.in) == 0 {
			if most := c.frame.free(len(p)); most > 0 { // a body's bytes pass unchanged
				n, err := c.Conn.Read(p[:most])
				c.frame.pass(n)
				return n, err
			}
		}
		buf := p
		if len(buf) < 512 { // the server watches for the client's end with one byte
			if c.spare == nil {
				c.spare = make([]byte, 4096)
			}
			buf = c.spare
		}
		n, err := c.Conn.Read(buf)
		c.in = append(c.in, buf[:n]...)
		c.judge()
		if err != nil && len(c.out) == 0 {
			return 0, err // hand on no half request; after a timeout the rest may come
		}
	}
}

// drain reads and discards everything after a refused request. So the answers to earlier requests
// are still sent, and the end of the connection is still noticed.
func (c *strictConn) drain() (int, error) {
	buf := make([]byte, 4096)
	for {
		if _, err := c.Conn.Read(buf); err != nil {
			return 0, err
		}
	}
}

// judge moves complete parts from in to out.
func (c *strictConn) judge() {
	for len(c.in) > 0 && c.err == nil && c.refused.Load() == nil {
		n, reason, err := c.frame.next(c.in)
		switch {
		case reason != "":
			c.refused.Store(&reason)
			c.out = append(c.out, cannedRequest...)
			c.in = nil
			return
		case err != nil:
			c.in, c.err = nil, err
			return
		case n == 0:
			return
		}
		c.upgrades.Store(c.frame.state == opaque)
		c.out = append(c.out, c.in[:n]...)
		c.in = c.in[n:]
	}
	if len(c.in) == 0 {
		c.in = nil
	}
}

// NetConn returns the wrapped connection, for operations that only TCP has.
func (c *strictConn) NetConn() net.Conn { return c.Conn }

// ReadFrom keeps the kernel's fast paths between sockets.
func (c *strictConn) ReadFrom(r io.Reader) (int64, error) { return io.Copy(c.Conn, r) }

// CloseWrite ends the sending direction.
func (c *strictConn) CloseWrite() error {
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return errors.ErrUnsupported
}

type strictKey struct{}

// StrictContext is for http.Server.ConnContext.
func StrictContext(ctx context.Context, c net.Conn) context.Context {
	if s, ok := c.(*strictConn); ok {
		return context.WithValue(ctx, strictKey{}, s)
	}
	return ctx
}

// StrictHandler answers the requests that [StrictListener] refused. It also refuses requests whose
// fault only shows here: CONNECT, and an HTTP/2 request whose Host differs from its :authority. It
// wraps all other handlers.
func StrictHandler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _ := r.Context().Value(strictKey{}).(*strictConn)
		if c != nil {
			if why := c.refused.Load(); why != nil && r.RequestURI == refusedTarget {
				w.Header().Set("Connection", "close")
				malformed(*why).write(w, r)
				return
			}
			if r.TLS == nil {
				r.TLS = c.tls
			}
			if r.ProtoMajor == 1 && c.upgrades.Load() {
				w = &upgradeWriter{ResponseWriter: w}
			}
		}
		switch hosts := r.Header.Values("Host"); {
		case r.Method == http.MethodConnect:
			(&answer{Message: "CONNECT is not served here", Code: http.StatusMethodNotAllowed}).write(w, r)
			return
		case len(hosts) > 1, len(hosts) == 1 && !strings.EqualFold(hosts[0], r.Host):
			malformed("Host and :authority disagree").write(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func malformed(why string) *answer {
	return &answer{Message: "malformed request: " + why, Code: http.StatusBadRequest}
}

// upgradeWriter answers a request for another protocol. The bytes after that request are not
// judged, so if the protocol stays HTTP, the connection ends.
type upgradeWriter struct{ http.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *upgradeWriter) WriteHeader(status int) {
	if status >= http.StatusOK {
		w.Header().Set("Connection", "close")
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *upgradeWriter) Write(p []byte) (int, error) {
	w.Header().Set("Connection", "close") // has no effect after WriteHeader
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *upgradeWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// h2Preface is the beginning of an HTTP/2 connection.
var h2Preface = []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")

// isPreface reports whether b begins an HTTP/2 connection. more says that more bytes are needed to
// tell.
func isPreface(b []byte) (yes, more bool) {
	if len(b) >= len(h2Preface) {
		return bytes.HasPrefix(b, h2Preface), false
	}
	return false, bytes.HasPrefix(h2Preface, b)
}
