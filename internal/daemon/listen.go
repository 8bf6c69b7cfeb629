package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel"
)

// Bounds on every client. The threat is one that holds connections open, sends
// its headers slowly, or sends very many of them.
const (
	headerTime  = 10 * time.Second
	idleTime    = 3 * time.Minute // longer than the SDKs' pings, which come every 50 s
	headerBytes = 64 << 10
	headerCount = 256
	drainTime   = 5 * time.Second
)

// newServer returns the HTTP server of both doors: HTTP/1.1 and HTTP/2, the
// latter also without TLS for clients that begin with it.
func newServer(h http.Handler, logger *slog.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           boundRest(limitHeaders(h)),
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    headerBytes,
		Protocols:         protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 1000,
			// Uploads of one stream may be this far ahead of the sandbox.
			MaxReceiveBufferPerStream:     1 << 20,
			MaxReceiveBufferPerConnection: 4 << 20,
			SendPingTimeout:               30 * time.Second,
			PingTimeout:                   15 * time.Second,
		},
		ErrorLog: log.New(levelWriter{logger}, "", 0),
	}
}

// levelWriter takes the HTTP server's own complaints, which clients cause.
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

// limitListener bounds how many connections are open at once; more wait in the
// kernel's queue.
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
	return &limitedConn{Conn: c, release: sync.OnceFunc(func() { <-l.slots })}, nil
}

// Close implements net.Listener.
func (l *limitListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.Listener.Close()
}

// limitedConn gives its slot back once.
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

// NetConn returns the connection itself, for what only TCP can do.
func (c *limitedConn) NetConn() net.Conn { return c.Conn }

// CloseWrite ends one direction, for streams that were taken over.
func (c *limitedConn) CloseWrite() error {
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return errors.ErrUnsupported
}

// ReadFrom keeps the kernel's fast paths between sockets.
func (c *limitedConn) ReadFrom(r io.Reader) (int64, error) { return io.Copy(c.Conn, r) }

// certificate is the TLS certificate, which SIGHUP replaces.
type certificate struct {
	cert, key string
	current   atomic.Pointer[tls.Certificate]
}

func loadCertificate(cert, key string) (*certificate, error) {
	c := &certificate{cert: cert, key: key}
	return c, c.reload()
}

func (c *certificate) reload() error {
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return &carrel.Error{Op: "load certificate", Kind: carrel.Invalid, Field: "tls-cert", Err: err,
			Hint: "give PEM files of a certificate and its key"}
	}
	c.current.Store(&pair)
	return nil
}

func (c *certificate) config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current.Load(), nil },
	}
}

// watch reloads on SIGHUP until ctx ends. A certificate that can't be loaded
// leaves the one before in use.
func (c *certificate) watch(ctx context.Context, logger *slog.Logger) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
			if err := c.reload(); err != nil {
				logger.Error("reload certificate", "err", err)
				continue
			}
			logger.Info("certificate reloaded")
		}
	}
}

// reachableURL is where this machine's clients reach an address that may be a
// wildcard.
func reachableURL(addr net.Addr, secure bool) string {
	u := url.URL{Scheme: "http", Host: addr.String()}
	if secure {
		u.Scheme = "https"
	}
	if tcp, ok := addr.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() { // "::" takes IPv4 as well
		u.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(tcp.Port))
	}
	return u.String()
}
