// Package web is the part of the wire that handles HTTP. It serves cleartext requests that are
// allowed by name, and TLS that is opened because requests are judged or given credentials. It
// parses, judges and changes each request, and writes it anew. So the server outside reads exactly
// the request that was judged.
package web

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/pki"
	"github.com/carrel-dev/carrel/internal/policy"
)

// Credentials are the secrets and tokens of sandboxes' owners.
type Credentials interface {
	// Secret returns the value of a secret for a request of the sandbox to host. Errors: NotFound;
	// Forbidden when the secret is not for this host.
	Secret(ctx context.Context, id carrel.ID, name, host string) (string, error)
	// Token returns a fresh identity token of the sandbox, by its name in
	// [carrel.CreateOptions].Tokens. Error: NotFound.
	Token(ctx context.Context, id carrel.ID, name string) (string, error)
}

// Options configures a Proxy.
type Options struct {
	// Authority opens TLS; nil means that TLS is refused.
	Authority *pki.CA
	// Roots verify the servers outside; nil means the host's roots.
	Roots *x509.CertPool
	// Credentials are the secrets and tokens that injections name; nil has none.
	Credentials Credentials
}

// Session is one connection of a sandbox.
type Session struct {
	ID    carrel.ID
	Addr  netip.Addr // where the sandbox sent it
	Port  uint16
	Names []string // for which it got Addr
	// TLS says that the connection begins with a client's hello, whose server name is ServerName.
	TLS        bool
	ServerName string
	// Judge judges a request by the present policy.
	Judge func(policy.Flow) policy.Verdict
	// Dial connects to the destination of an allowed request: to v.ByName, looked up again, or to
	// Addr. It enforces limits and counts nothing.
	Dial func(ctx context.Context, f policy.Flow, v policy.Verdict) (net.Conn, error)
	// Request waits until the limits let another request pass. An error refuses the request.
	Request func(ctx context.Context, v policy.Verdict) error
	// Report receives one decision for each request, when the request has ended or was refused. For
	// a refusal, it is called before the sandbox gets its answer, and may take a moment.
	Report func(ctx context.Context, d carrel.Decision)
}

// Proxy serves sessions. It is safe for concurrent use.
type Proxy struct {
	opts   Options
	server *tls.Config // for the sandbox's end
	client *tls.Config // for servers' connections, without a server name
	// headTimeout is how long a request's head may take.
	headTimeout time.Duration

	mu   sync.Mutex
	open map[carrel.ID]int // requests of each sandbox
}

// maxOpen bounds one sandbox's open requests over all of its connections. Each may hold two
// buffers.
const maxOpen = 8192

// enter counts a request of a sandbox. It reports false when there are too many.
func (p *Proxy) enter(id carrel.ID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[id] >= maxOpen {
		return false
	}
	p.open[id]++
	return true
}

func (p *Proxy) leave(id carrel.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[id]--; p.open[id] == 0 {
		delete(p.open, id)
	}
}

// New returns a Proxy.
func New(opts Options) *Proxy {
	p := &Proxy{opts: opts, headTimeout: headTimeout, open: make(map[carrel.ID]int)}
	p.server = &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: p.certificate,
		// Small first records would only cost time, because the sandbox is on this machine.
		DynamicRecordSizingDisabled: true,
	}
	p.client = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: opts.Roots, DynamicRecordSizingDisabled: true}
	return p
}

// Serve serves one connection until the connection or ctx ends. conn gives all bytes from the
// first. The caller closes it.
func (p *Proxy) Serve(ctx context.Context, conn net.Conn, s *Session) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	c := &session{Session: s, proxy: p}
	defer c.close()
	if !s.TLS {
		c.serveClear(ctx, conn)
		return
	}
	inner, err := p.openTLS(ctx, conn, s)
	if err != nil {
		c.reportHandshake(ctx, err)
		return
	}
	if inner.ConnectionState().NegotiatedProtocol == "h2" {
		c.serveHTTP2(ctx, inner)
	} else {
		c.serveHTTP1(ctx, inner, nil)
	}
	_ = inner.CloseWrite()
}
