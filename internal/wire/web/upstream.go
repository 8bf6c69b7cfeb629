package web

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

// handshakeTimeout bounds a TLS handshake, on both sides.
const handshakeTimeout = 15 * time.Second

// upstream is a connection to a server, for requests to one place with the same credentials.
type upstream struct {
	conn   net.Conn
	in     *reader
	byName string
	inject *carrel.Injection
	used   bool  // at least one request was answered on it
	asked  int64 // bytes received when the present request was sent
	stop   func() bool
	idle   watcher
}

// dial connects to the destination of a judged request, and opens TLS if the sandbox did. keep, if
// given, wraps the connection from Session.Dial.
func (p *Proxy) dial(ctx context.Context, s *Session, f policy.Flow, v policy.Verdict, protos []string, keep func(net.Conn) net.Conn) (net.Conn, error) {
	conn, err := s.Dial(ctx, f, v)
	if err != nil {
		return nil, dialError{err}
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

// dialError says why a server could not be reached. It contains nothing that the server sent.
type dialError struct{ error }

// Unwrap returns the cause.
func (e dialError) Unwrap() error { return e.error }

// handshakeError describes a failed TLS handshake with a server.
func handshakeError(name string, err error) error {
	var unverified *tls.CertificateVerificationError
	switch {
	case errors.As(err, &unverified):
		return &carrel.Error{Kind: carrel.Denied, Err: errors.New("the certificate of " + name + " is not to be trusted: " + distrust(unverified.Err)),
			Hint: "the server's certificate must be valid for its name and come from an authority that the host trusts"}
	case errors.Is(err, context.DeadlineExceeded):
		return &carrel.Error{Kind: carrel.TimedOut, Err: errors.New("TLS with " + name + " took too long")}
	}
	what := "the handshake failed"
	if alert, ok := errors.AsType[tls.AlertError](err); ok {
		what = "the server ended the handshake: " + alert.Error()
	} else if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		what = "the server does not speak TLS"
	} else if isTransport(err) || errors.Is(err, io.EOF) {
		what = "the connection broke"
	}
	return &carrel.Error{Kind: carrel.Unavailable, Err: errors.New("TLS with " + name + ": " + what)}
}

// distrust says what is wrong with a certificate. It quotes nothing from the certificate, because a
// server could have put a secret there that it got before.
func distrust(err error) string {
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "it is for other names"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "it comes from an authority that this host does not know"
	}
	if bad, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		switch bad.Reason {
		case x509.Expired:
			return "it is expired, or not valid yet"
		case x509.IncompatibleUsage:
			return "it is not for servers"
		case x509.NotAuthorizedToSign, x509.TooManyIntermediates:
			return "it was signed by a certificate that may not sign it"
		case x509.CANotAuthorizedForThisName:
			return "its authority may not sign for this name"
		}
	}
	return "it is not valid"
}

// connect returns a connection for a request. It reuses the last request's connection if this
// request goes to the same place. fresh forces a new connection.
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
