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
	"github.com/carrel-dev/carrel/internal/pki"
	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/carrel-dev/carrel/internal/wire/web"
)

// Dialer makes the daemon's own connections for what a sandbox may reach.
// [*net.Dialer] is one. The address is always a literal IP and port.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Resolver answers the DNS questions of sandboxes that may leave.
type Resolver interface {
	Exchange(ctx context.Context, question *dns.Msg) (*dns.Msg, error)
}

// Credentials are the secrets and tokens of sandboxes' owners.
type Credentials = web.Credentials

// Options configures a Wire. The zero value lets nothing out.
type Options struct {
	// Egress says what may leave a sandbox; it is asked once, at Attach. Nil means
	// that nothing gets out, as the function and as its answer. SetNetwork changes the
	// answer later.
	Egress func(carrel.ID) *policy.Policy
	// Dialer is used for allowed connections; nil is a plain net.Dialer.
	Dialer Dialer
	// Resolver answers allowed DNS questions; nil asks the host's name servers.
	Resolver Resolver
	// MaxConns and MaxSessions bound one sandbox's open TCP connections and UDP
	// sessions to the outside; zero is 8192 and 1024.
	MaxConns, MaxSessions int
	// Local, if given, serves what the sandbox connects to at the gateway's address and
	// [guest.HostPort], whatever its policy: the few things that it may ask of its host. c
	// is closed when Local returns, and breaks when the link ends. At most eight run for
	// one sandbox at once; more are refused.
	Local func(id carrel.ID, c net.Conn)
	// HostService says whether a sandbox may reach a port on this machine's loopback, which its policy
	// opens to it: an error says why not. It must refuse the ports of this very process. Nil refuses all.
	HostService func(id carrel.ID, port uint16) error
	// Audit takes every decision; nil drops them. It must not block.
	Audit func(carrel.Decision)
	// Refused tells the sandbox of a refusal before it notices, so that whoever runs the
	// program can read why; it returns the program's name if it learned that. It is called
	// for the first of equal refusals in a while, and not waited for longer than
	// refusedTimeout. Nil tells nothing.
	Refused func(ctx context.Context, id carrel.ID, r guest.Refusal) guest.RefusalReply
	// Credentials are what injections name; nil has none.
	Credentials Credentials
	// Authority opens TLS where requests are judged or given credentials; nil refuses
	// what would need it.
	Authority *pki.CA
	// Roots verify the servers outside; nil is the host's.
	Roots *x509.CertPool
	// UDPIdle ends a UDP session after silence this long; zero is one minute.
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
	peeking atomic.Int64 // bytes of connections that have not said what they are
	changes atomic.Int64 // of rules, by SetNetwork

	mu     sync.Mutex
	links  map[carrel.ID]*Link
	closed bool
}

var _ driver.Network = (*Wire)(nil)

// New returns a Wire. Close closes what it still has.
func New(opts Options) *Wire {
	return &Wire{opts: opts.withDefaults(), host: &hostAddrs{}, links: make(map[carrel.ID]*Link),
		web: web.New(web.Options{Authority: opts.Authority, Roots: opts.Roots, Credentials: opts.Credentials})}
}

// Attach starts a stack on fd, which it owns from now on, also on error. A link
// that is attached for the same sandbox already is closed first: a descriptor
// has room for one stack.
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
		if w.changes.Load() != seen { // while this link could not be found
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

// SetNetwork changes what may leave a running sandbox. Open connections that are
// no longer allowed are cut. Limits of bytes are for connections that are opened
// afterwards. Nil lets nothing out. Error: NotFound.
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
	}
}

func attachError(id carrel.ID, k carrel.Kind, err error) error {
	return &carrel.Error{Op: "attach link", Kind: k, ID: id, Err: err}
}
