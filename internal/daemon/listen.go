package daemon

import (
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/internal/config"
	"github.com/carrel-dev/carrel/internal/gateway"
)

// Bounds on every client. The threat is a client that holds connections open, sends its headers
// slowly, or sends very many of them.
const (
	headerTime  = 10 * time.Second
	idleTime    = 3 * time.Minute // longer than the 50 s between two pings of the SDKs
	headerBytes = 64 << 10
	headerCount = 256
	drainTime   = 5 * time.Second
)

// newServer returns the HTTP server of both doors. It speaks HTTP/1.1 and HTTP/2. HTTP/2 also works
// without TLS, for clients that begin with it.
// NewServer is the server of a daemon or a front: h behind the checks and bounds that every door has.
func NewServer(h http.Handler, logger *slog.Logger) *http.Server { return newServer(h, logger) }

func newServer(h http.Handler, logger *slog.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           gateway.StrictHandler(boundRest(limitHeaders(h))),
		ConnContext:       gateway.StrictContext,
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    headerBytes,
		Protocols:         protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 1000,
			// The upload of one stream may be this far ahead of the sandbox.
			MaxReceiveBufferPerStream:     1 << 20,
			MaxReceiveBufferPerConnection: 4 << 20,
			SendPingTimeout:               30 * time.Second,
			PingTimeout:                   15 * time.Second,
		},
		ErrorLog: log.New(levelWriter{logger}, "", 0),
	}
}

// levelWriter receives the HTTP server's own error messages, which clients cause.
type levelWriter struct{ log *slog.Logger }

// Write implements io.Writer.
func (w levelWriter) Write(p []byte) (int, error) {
	w.log.Debug("http", "msg", string(p))
	return len(p), nil
}

// limitHeaders refuses requests with very many headers.
func limitHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := 0
		for _, values := range r.Header {
			n += len(values)
		}
		if n > headerCount {
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			w.WriteHeader(http.StatusRequestHeaderFieldsTooLarge)
			_, _ = fmt.Fprintf(w, `{"code":431,"message":"more than %d header fields"}`+"\n", headerCount)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// limitListener bounds the number of open connections. Others wait in the kernel's queue.
type limitListener struct {
	net.Listener
	slots chan struct{}
	once  sync.Once
	done  chan struct{}
}

func newLimitListener(l net.Listener, n int) net.Listener {
	return &limitListener{Listener: l, slots: make(chan struct{}, n), done: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *limitListener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.done:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	boundUnsent(c)
	return &limitedConn{Conn: c, release: sync.OnceFunc(func() { <-l.slots })}, nil
}

// Close implements net.Listener.
func (l *limitListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.Listener.Close()
}

// limitedConn is a connection that gives its place back exactly once.
type limitedConn struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.release()
	return err
}

// NetConn returns the wrapped connection, for operations that only TCP has.
func (c *limitedConn) NetConn() net.Conn { return c.Conn }

// CloseWrite ends the sending direction, for streams that were taken over.
func (c *limitedConn) CloseWrite() error {
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return errors.ErrUnsupported
}

// ReadFrom keeps the kernel's fast paths between sockets.
func (c *limitedConn) ReadFrom(r io.Reader) (int64, error) { return io.Copy(c.Conn, r) }

// reachableURL is the URL for clients on this machine. addr may be a wildcard address. A
// certificate of an ACME authority is valid only for names.
func reachableURL(addr net.Addr, cfg config.Config) string {
	u := url.URL{Scheme: "http", Host: addr.String()}
	if cfg.TLS() {
		u.Scheme = "https"
	}
	tcp, ok := addr.(*net.TCPAddr)
	switch {
	case !ok:
	case len(cfg.Ingress.ACMEDomains) > 0:
		u.Host = net.JoinHostPort(cfg.Ingress.ACMEDomains[0], strconv.Itoa(tcp.Port))
	case tcp.IP.IsUnspecified(): // "::" takes IPv4 as well
		u.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(tcp.Port))
	}
	return u.String()
}
