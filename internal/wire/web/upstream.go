package web

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

// handshakeTimeout bounds a TLS handshake, on either side.
const handshakeTimeout = 15 * time.Second

// upstream is a connection to a server, for requests that go to the same place with the
// same credentials.
type upstream struct {
	conn   net.Conn
	in     *reader
	byName string
	inject *carrel.Injection
	used   bool  // at least one request was answered on it
	asked  int64 // how much had come when the present request was sent
	stop   func() bool
	idle   watcher
}

// dial connects to where a judged request goes, and opens TLS if the sandbox did. keep, if
// given, wraps what Session.Dial returned.
func (p *Proxy) dial(ctx context.Context, s *Session, f policy.Flow, v policy.Verdict, protos []string, keep func(net.Conn) net.Conn) (net.Conn, error) {
	conn, err := s.Dial(ctx, f, v)
	if err != nil {
		return nil, err
	}
	if keep != nil {
		conn = keep(conn)
	}
	if !s.TLS {
		return conn, nil
	}
	cfg := p.client.Clone()
	cfg.NextProtos = protos
	if cfg.ServerName = plainName(s.ServerName); cfg.ServerName == "" {
		cfg.ServerName = s.Addr.Unmap().WithZone("").String()
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	t := tls.Client(conn, cfg)
	if err := t.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, handshakeError(cfg.ServerName, err)
	}
	return t, nil
}

// handshakeError says what is wrong with a server's TLS.
func handshakeError(name string, err error) error {
	var unverified *tls.CertificateVerificationError
	switch {
	case errors.As(err, &unverified):
		return &carrel.Error{Kind: carrel.Denied, Err: errors.New("the certificate of " + name + " is not to be trusted: " + unverified.Err.Error()),
			Hint: "the server's certificate must be valid for its name and come from an authority that the host trusts"}
	case errors.Is(err, context.DeadlineExceeded):
		return &carrel.Error{Kind: carrel.TimedOut, Err: errors.New("TLS with " + name + " took too long")}
	}
	return &carrel.Error{Kind: carrel.Unavailable, Err: errors.New("TLS with " + name + ": " + err.Error())}
}

// connect returns a connection for a request: the one of the request before, when
// it goes to the same place. fresh wants a new one.
func (c *session) connect(ctx context.Context, e *exchange, fresh bool) (*upstream, error) {
	if u := c.up; u != nil {
		if u.idle.disarm() && !fresh && u.used && u.byName == e.verdict.ByName && sameInjection(u.inject, e.verdict.Inject) {
			return u, nil
		}
		c.drop()
	}
	conn, err := c.proxy.dial(ctx, c.Session, e.flow, e.verdict, []string{"http/1.1"}, nil)
	if err != nil {
		return nil, err
	}
	u := &upstream{conn: conn, in: newReader(conn), byName: e.verdict.ByName, inject: e.verdict.Inject}
	u.stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
	u.idle = watcher{conn: conn, read: func() error {
		var b [1]byte
		if _, err := conn.Read(b[:]); err != nil {
			return err
		}
		return errors.New("the server speaks unasked")
	}, ended: func() { _ = conn.Close() }}
	c.up = u
	return u, nil
}

// drop closes the connection to the server.
func (c *session) drop() {
	if c.up == nil {
		return
	}
	u := c.up
	c.up = nil
	u.stop()
	_ = u.conn.Close()
	u.idle.disarm()
	u.in.release()
}
