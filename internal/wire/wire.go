package wire

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/inbox"
	"github.com/carrel-dev/carrel/internal/pki"
	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/carrel-dev/carrel/internal/wire/web"
)

// Dialer makes the daemon's own connections to allowed destinations. [*net.Dialer] is one. The
// address is always a literal IP and port.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Resolver answers the allowed DNS questions of sandboxes.
type Resolver interface {
	Exchange(ctx context.Context, question *dns.Msg) (*dns.Msg, error)
}

// Credentials are the secrets and tokens of sandboxes' owners.
type Credentials = web.Credentials

// Options configures a Wire. The zero value lets nothing out.
type Options struct {
	// Egress returns a sandbox's policy. Attach calls it once. A nil function or a nil policy lets
	// nothing out. SetNetwork changes the policy later.
	Egress func(carrel.ID) *policy.Policy
	// Dialer makes allowed connections; nil is a plain net.Dialer.
	Dialer Dialer
	// Resolver answers allowed DNS questions; nil asks the host's name servers.
	Resolver Resolver
	// MaxConns and MaxSessions bound one sandbox's open TCP connections and UDP sessions to the
	// outside; zero means 8192 and 1024.
	MaxConns, MaxSessions int
	// Local, if given, serves the sandbox's connections to [guest.HostPort] at the gateway's
	// address, under every policy. They are for the few things that a sandbox may ask of its host.
	// c is closed when Local returns, and breaks when the link ends. At most eight run for one
	// sandbox at once; more are refused.
	Local func(id carrel.ID, c net.Conn)
	// HostService says whether a sandbox may reach a port on this machine's loopback, which its
	// policy opens to it: an error says why not. It must refuse the ports of this very process. Nil
	// refuses all.
	HostService func(id carrel.ID, port uint16) error
	// Audit receives every decision; nil drops them. It must not block.
	Audit func(carrel.Decision)
	// Refused tells the sandbox of a refusal before the program notices, so that its user can read
	// why. It returns the program's name if the guest knows it. It is called for the first of equal
	// refusals in a while. The wire waits for it at most refusedTimeout. Nil tells nothing.
	Refused func(ctx context.Context, id carrel.ID, r guest.Refusal) guest.RefusalReply
	// Ask asks a person about a connection that the policy holds, and returns the answer. It returns
	// a no when ctx ends. Nil refuses such connections.
	Ask func(ctx context.Context, a inbox.Ask) inbox.Reply
	// Credentials are the secrets that injections name; nil has none.
	Credentials Credentials
	// Authority opens TLS where requests are judged or given credentials. With nil, connections
	// that need this are refused.
	Authority *pki.CA
	// Roots verify the servers outside; nil means the host's roots.
	Roots *x509.CertPool
	// UDPIdle ends a UDP session after this much silence; zero is one minute.
	UDPIdle time.Duration
}

func (o Options) withDefaults() Options {
	if o.Egress == nil {
		o.Egress = func(carrel.ID) *policy.Policy { return nil }
	}
	if o.Dialer == nil {
		o.Dialer = &net.Dialer{Timeout: dialTimeout}
	}
	if o.Resolver == nil {
		o.Resolver = &HostResolver{}
	}
	if o.MaxConns <= 0 {
		o.MaxConns = 8192
	}
	if o.MaxSessions <= 0 {
		o.MaxSessions = 1024
	}
	if o.UDPIdle <= 0 {
		o.UDPIdle = time.Minute
	}
	return o
}

// Wire makes links. It is safe for concurrent use.
type Wire struct {
	opts    Options
	host    *hostAddrs
	web     *web.Proxy
	peeking atomic.Int64 // bytes of connections not yet understood
	changes atomic.Int64 // of rules, by SetNetwork
	// inbounds are the connections to sandboxes. They share a budget.
	inbounds  inbounds
	decisions decisions

	mu     sync.Mutex
	links  map[carrel.ID]*Link
	closed bool
	// sent and received are the bytes of links that are gone.
	sent, received int64
}

var _ driver.Network = (*Wire)(nil)

// New returns a Wire. Close closes its remaining links.
func New(opts Options) *Wire {
	return &Wire{opts: opts.withDefaults(), host: &hostAddrs{}, links: make(map[carrel.ID]*Link),
		inbounds: inbounds{budget: inboundBudget},
		web:      web.New(web.Options{Authority: opts.Authority, Roots: opts.Roots, Credentials: opts.Credentials})}
}

// Attach starts a stack on fd, and owns fd from now on, also on error. If the sandbox has a link
// already, Attach closes that link first, because a descriptor has room for one stack.
func (w *Wire) Attach(ctx context.Context, spec driver.LinkSpec, fd *os.File) (driver.Link, error) {
	if err := ctx.Err(); err != nil {
		_ = fd.Close()
		return nil, attachError(spec.ID, carrel.TimedOut, err)
	}
	if spec.MTU < minMTU || spec.MTU > maxMTU {
		_ = fd.Close()
		return nil, attachError(spec.ID, carrel.Invalid, errMTU)
	}
	w.mu.Lock()
	old := w.links[spec.ID]
	w.mu.Unlock()
	if old != nil {
		_ = old.Close()
	}
	seen := w.changes.Load()
	l, err := newLink(w, spec, fd, w.newRules(w.opts.Egress(spec.ID)))
	if err != nil {
		return nil, attachError(spec.ID, carrel.Internal, err)
	}
	w.mu.Lock()
	if !w.closed {
		w.links[spec.ID] = l
		w.mu.Unlock()
		if w.changes.Load() != seen { // a change came before this link was in the table
			if err := w.SetNetwork(spec.ID, w.opts.Egress(spec.ID)); err != nil {
				_ = l.Close()
				return nil, err
			}
		}
		return l, nil
	}
	w.mu.Unlock()
	_ = l.Close()
	return nil, attachError(spec.ID, carrel.Unavailable, net.ErrClosed)
}

// SetNetwork changes the policy of a running sandbox. It cuts open connections that are no longer
// allowed. New limits of bytes apply to connections that are opened afterwards. A nil policy lets
// nothing out. Error: NotFound.
func (w *Wire) SetNetwork(id carrel.ID, p *policy.Policy) error {
	w.changes.Add(1)
	w.mu.Lock()
	l := w.links[id]
	w.mu.Unlock()
	if l == nil {
		return &carrel.Error{Op: "set network", Kind: carrel.NotFound, ID: id,
			Err: errors.New("the sandbox has no link")}
	}
	l.setRules(w.newRules(p))
	return nil
}

// Traffic returns how many bytes a sandbox has sent and received on its present link. Both are 0
// without a link.
func (w *Wire) Traffic(id carrel.ID) (sent, received int64) {
	w.mu.Lock()
	l := w.links[id]
	w.mu.Unlock()
	if l == nil {
		return 0, 0
	}
	return l.ep.inward.Load(), l.ep.outward.Load()
}

// Close closes every link and waits for them.
func (w *Wire) Close() error {
	w.mu.Lock()
	w.closed = true
	links := make([]*Link, 0, len(w.links))
	for _, l := range w.links {
		links = append(links, l)
	}
	w.mu.Unlock()
	for _, l := range links {
		_ = l.Close()
	}
	return nil
}

// forget drops a closed link from the table.
func (w *Wire) forget(l *Link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.links[l.id] == l {
		delete(w.links, l.id)
		w.sent += l.ep.inward.Load()
		w.received += l.ep.outward.Load()
	}
}

func attachError(id carrel.ID, k carrel.Kind, err error) error {
	return &carrel.Error{Op: "attach link", Kind: k, ID: id, Err: err}
}
