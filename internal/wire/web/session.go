package web

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

// session serves a Session.
type session struct {
	*Session
	proxy   *Proxy
	planner planner   // for HTTP/1, with one request after the other
	up      *upstream // the same
}

func (c *session) close() { c.drop() }

// exchange is one request and its answer.
type exchange struct {
	start    time.Time
	flow     policy.Flow
	verdict  policy.Verdict
	inject   *carrel.Injection
	plan     *plan // nil when nothing is put in
	sent     int64
	received int64
}

// admit judges a request, and waits for the rate limits.
func (c *session) admit(ctx context.Context, q *request) (exchange, *refusal) {
	e := exchange{start: time.Now()}
	var r *refusal
	if e.flow, r = q.belongs(c.Session); r != nil {
		return e, r
	}
	e.verdict = c.Judge(e.flow)
	if !e.verdict.Allow {
		return e, denied(e.verdict)
	}
	if q.alsoMethod != "" || q.alsoPath != "" {
		f := e.flow
		if q.alsoMethod != "" {
			f.Method = q.alsoMethod
		}
		if q.alsoPath != "" {
			f.Path = q.alsoPath
		}
		if v := c.Judge(f); !v.Allow {
			return e, denied(v)
		}
	}
	if c.Request != nil {
		if err := c.Request(ctx, e.verdict); err != nil {
			return e, limited(e.verdict, err)
		}
	}
	if in := e.verdict.Inject; in != nil && (c.TLS || in.Cleartext) {
		e.inject = in
	}
	return e, nil
}

// prepare finds the credentials for an admitted request.
func (c *session) prepare(ctx context.Context, q *request, e *exchange, p *planner) *refusal {
	if e.inject == nil {
		return nil
	}
	made, err := p.plan(ctx, c.proxy.opts.Credentials, c.ID, q.host, e.inject)
	if err != nil {
		return uncredentialed(e.verdict, err)
	}
	e.plan = made
	return nil
}

// scrub returns the texts to remove from the answer.
func (e *exchange) scrub() *needles {
	if e.plan == nil {
		return nil
	}
	return e.plan.scrub
}

// decision describes the exchange as an event.
func (c *session) decision(e *exchange, status int) carrel.Decision {
	d := carrel.Decision{
		Time: e.start, ID: c.ID, Allowed: true, Protocol: "http",
		Name: e.flow.Name, Address: c.Addr.Unmap().String(), Port: c.Port,
		Method: e.flow.Method, Path: e.flow.Path, Status: status, Rule: e.verdict.Rule, Answer: e.verdict.Answer,
		Sent: e.sent, Received: e.received, Duration: time.Since(e.start),
	}
	if c.TLS {
		d.Protocol = "https"
		if d.Name == "" {
			d.Name = plainName(c.ServerName)
		}
	}
	if e.plan != nil {
		d.Secrets = e.plan.names
	}
	return d
}

// report reports an exchange that has ended.
func (c *session) report(ctx context.Context, e *exchange, status int) {
	if c.Report != nil {
		c.Report(context.WithoutCancel(ctx), c.decision(e, status))
	}
}

// reportRefusal reports a refusal before the sandbox reads it. A request that failed outside counts
// as allowed.
func (c *session) reportRefusal(ctx context.Context, e *exchange, r *refusal) {
	if c.Report == nil {
		return
	}
	d := c.decision(e, r.status)
	d.Allowed = r.status == http.StatusBadGateway || r.status == http.StatusGatewayTimeout
	d.Rule, d.Reason, d.Hint, d.Secrets = r.rule, visible(r.reason), visible(r.hint), nil
	c.Report(ctx, d)
}

// errNoAuthority is the reason why TLS can't be opened.
var errNoAuthority = errors.New("there is no authority to open TLS with")

type sessionKey struct{}

// openTLS is the server's side of the sandbox's TLS.
func (p *Proxy) openTLS(ctx context.Context, conn net.Conn, s *Session) (*tls.Conn, error) {
	if p.opts.Authority == nil {
		return nil, errNoAuthority
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	t := tls.Server(conn, p.server)
	if err := t.HandshakeContext(context.WithValue(ctx, sessionKey{}, s)); err != nil {
		return nil, err
	}
	if plainName(t.ConnectionState().ServerName) != plainName(s.ServerName) {
		return nil, errors.New("the server name changed during the handshake")
	}
	return t, nil
}

// certificate makes a certificate for the name that the connection was judged by.
func (p *Proxy) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	s, ok := hello.Context().Value(sessionKey{}).(*Session)
	if !ok {
		return nil, errNoAuthority
	}
	name := plainName(s.ServerName)
	if name == "" {
		name = s.Addr.Unmap().WithZone("").String()
	}
	return p.opts.Authority.Leaf(name)
}

// reportHandshake reports that a sandbox did not finish its handshake. Often the program does not
// trust the authority.
func (c *session) reportHandshake(ctx context.Context, err error) {
	if c.Report == nil || ctx.Err() != nil {
		return
	}
	d := carrel.Decision{
		Time: time.Now(), ID: c.ID, Protocol: "tls", Name: plainName(c.ServerName),
		Address: c.Addr.Unmap().String(), Port: c.Port, Rule: "built-in: tls",
		Reason: "TLS could not be opened: " + visible(err.Error()),
		Hint:   "the program must trust the certificate in /run/carrel/ca.pem",
	}
	c.Report(ctx, d)
}

// preface begins an HTTP/2 connection with prior knowledge.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// serveClear serves a connection without TLS: HTTP/1, or HTTP/2 with prior knowledge.
func (c *session) serveClear(ctx context.Context, conn net.Conn) {
	in := newReader(conn)
	_ = conn.SetReadDeadline(time.Now().Add(c.proxy.headTimeout))
	for {
		b := in.buffered()
		if len(b) >= len(preface) || !bytes.HasPrefix([]byte(preface), b) {
			break
		}
		if in.fill() != nil {
			break // the bytes so far show the error
		}
	}
	_ = conn.SetReadDeadline(time.Time{})
	if bytes.HasPrefix(in.buffered(), []byte(preface)) {
		read := bytes.Clone(in.buffered())
		in.release()
		c.serveHTTP2(ctx, &rereadConn{Conn: conn, Reader: io.MultiReader(bytes.NewReader(read), conn)})
		return
	}
	c.serveHTTP1(ctx, conn, in)
}

// rereadConn is a connection with bytes that were read already.
type rereadConn struct {
	net.Conn
	io.Reader
}

// Read implements io.Reader.
func (c *rereadConn) Read(p []byte) (int, error) { return c.Reader.Read(p) }
