// Package member makes a daemon a node of a fleet. It joins at a front, renews its membership, and
// tells where the machine's sandboxes are. It decides when they may run: as long as the membership
// lasts.
//
// # Leases
//
// The member counts its lease from before the request that renewed it, on a clock that also runs
// while the machine sleeps. So it ends here before it ends in the fleet's registry. When it ends,
// the member holds all sandboxes: their processes stand still. When a front answers again, the
// member first learns which sandboxes are still its own. It lets those go on, and releases the
// others.
package member

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/fleet"
	"github.com/carrel-dev/carrel/internal/fleet/certificate"
	"github.com/carrel-dev/carrel/internal/quota"
)

// Local is one of the machine's sandboxes.
type Local struct {
	ID      carrel.ID
	Project string
	State   fleet.State // Running or Paused
	Load    quota.Load  // what it holds while it runs
}

// Sandboxes are the sandboxes of this machine.
type Sandboxes interface {
	// All returns all that live.
	All(ctx context.Context) ([]Local, error)
	// Follow calls change for each sandbox whose life changed: it began, ended, was paused, resumed
	// or saved. It returns when ctx ends, or when changes may have been missed.
	Follow(ctx context.Context, change func(carrel.ID)) error
	// Find returns one; found is false if it has ended.
	Find(ctx context.Context, id carrel.ID) (l Local, found bool, err error)
	// Passport puts a sandbox's last pause, or checkpoint, into the shared store. It returns nil if
	// there is none.
	Passport(ctx context.Context, id carrel.ID) ([]byte, error)
	// Release gives up a sandbox that lives on another node.
	Release(ctx context.Context, id carrel.ID) error
	// Hold makes the processes of all sandboxes stand still, and keeps visitors out. Release ends
	// that.
	Hold(why error)
	Unhold()
}

// Options configure a [Member]. All but Taints, Log and Lease are required.
type Options struct {
	Fronts []string // their addresses for nodes, https://host:port
	Name   string
	Token  string // the fleet's join token
	// Dir keeps the node's key and certificate.
	Dir string
	// URL is where fronts reach this node's listener, https://host:port. Key is the daemon's API key.
	URL, Key  string
	Version   string
	Taints    []string
	Sandboxes Sandboxes
	Log       *slog.Logger
}

// Member is this daemon's membership. It is safe for concurrent use.
type Member struct {
	opts   Options
	key    certificate.Key
	caller *caller
	log    *slog.Logger

	mu       sync.Mutex
	cert     *tls.Certificate
	roots    *x509.CertPool
	token    int64         // 0 before the first membership
	until    time.Duration // on the machine's clock
	held     bool
	stays    map[carrel.ID]int64 // of the sandboxes here, as far as known
	packed   map[carrel.ID]int64 // the stays whose pause is in the registry
	draining bool

	publish *queue
}

// errNoLease is why a sandbox does not run: the machine is not a member now.
var errNoLease = errors.New("this node has no word from a front of its fleet")

// New prepares a membership. Errors: Invalid, Internal.
func New(o Options) (*Member, error) {
	const op = "join fleet"
	if err := fleet.CheckName(o.Name); err != nil {
		return nil, err
	}
	if len(o.Token) < certificate.MinToken {
		return nil, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "join-token-file",
			Err: fmt.Errorf("the join token has %d characters, of %d or more", len(o.Token), certificate.MinToken)}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c, err := newCaller(o.Fronts)
	if err != nil {
		return nil, err
	}
	m := &Member{opts: o, caller: c, log: o.Log, held: true, publish: newQueue(), stays: map[carrel.ID]int64{}, packed: map[carrel.ID]int64{}}
	if err = os.MkdirAll(o.Dir, 0o700); err == nil {
		err = m.loadKey()
	}
	if err != nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
	}
	m.loadCertificate()
	return m, nil
}

// The files of a node.
const (
	keyFile       = "key.pem"
	certFile      = "certificate.pem"
	authorityFile = "authority.pem"
)

func (m *Member) loadKey() error {
	name := filepath.Join(m.opts.Dir, keyFile)
	text, err := os.ReadFile(name)
	if err == nil {
		if m.key, err = certificate.ParseKey(text); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		return err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if m.key, err = certificate.NewKey(); err != nil {
		return err
	}
	if text, err = m.key.PEM(); err != nil {
		return err
	}
	return atomicfile.Write(name, text, 0o600)
}

// loadCertificate takes the certificate of the last start, if it is good.
func (m *Member) loadCertificate() {
	cert, err1 := os.ReadFile(filepath.Join(m.opts.Dir, certFile))
	authority, err2 := os.ReadFile(filepath.Join(m.opts.Dir, authorityFile))
	if err1 != nil || err2 != nil {
		return
	}
	if err := m.takeCertificate(cert, authority); err != nil {
		m.log.Warn("the node's certificate can't be used; it joins anew", "err", err)
	}
}

// takeCertificate uses a certificate from now on.
func (m *Member) takeCertificate(cert, authority []byte) error {
	pair, err := m.key.Pair(cert)
	if err != nil {
		return err
	}
	roots, err := certificate.Roots(authority)
	if err != nil {
		return err
	}
	peer, err := certificate.Check(roots, tls.ConnectionState{PeerCertificates: []*x509.Certificate{pair.Leaf}})
	if err != nil {
		return err
	}
	if err := certificate.IsNode(m.opts.Name)(peer); err != nil {
		return err
	}
	m.mu.Lock()
	m.cert, m.roots = &pair, roots
	m.mu.Unlock()
	m.caller.use(certificate.ClientConfig(roots, m.certificate, certificate.IsFront))
	return nil
}

// certificate returns the certificate to show; nil before the node has joined.
func (m *Member) certificate() *tls.Certificate {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cert
}

// ServerConfig is the configuration of the node's listener, which serves fronts only.
func (m *Member) ServerConfig() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		m.mu.Lock()
		roots, cert := m.roots, m.cert
		m.mu.Unlock()
		if cert == nil {
			return nil, errNoLease
		}
		cfg := certificate.ServerConfig(roots, m.certificate, false, certificate.IsFront)
		cfg.NextProtos = []string{"http/1.1"}
		return cfg, nil
	}}
}

// clock is the time since the machine's start, with the time that it slept.
func clock() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0 // the kernel has had this clock since 2.6.39
	}
	return time.Duration(ts.Nano())
}

// Alive reports whether sandboxes may run here.
func (m *Member) Alive() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.held && clock() < m.until
}

// Draining reports whether the fleet moves sandboxes away from here.
func (m *Member) Draining() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.draining
}

// member returns the token of the membership; 0 when it has ended.
func (m *Member) member() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held || clock() >= m.until {
		return 0
	}
	return m.token
}

// Begin asks whether a paused sandbox may run here. Errors: Unavailable when no front says so,
// Conflict ([fleet.ErrFenced]) when it lives on another node.
func (m *Member) Begin(ctx context.Context, id carrel.ID) error {
	const op = "begin to run"
	token := m.member()
	if token == 0 {
		return &carrel.Error{Op: op, Kind: carrel.Unavailable, ID: id, Err: errNoLease,
			Hint: "look at the fronts, and at the network between them and this node"}
	}
	a, err := call[fleet.MemberAnswer](ctx, m.caller, op, fleet.PathBegin, id, fleet.MemberRequest{Token: token, ID: id})
	m.stay(a.Homes)
	if err == nil && m.member() != token {
		err = &carrel.Error{Op: op, Kind: carrel.Conflict, ID: id, Err: fleet.ErrFenced}
	}
	return err
}

// Failed is called when a sandbox did not run after Begin. The registry hears that it is paused.
func (m *Member) Failed(id carrel.ID) {
	time.AfterFunc(retryEvery, func() { // it is paused again a moment later
		ctx, cancel := context.WithTimeout(context.Background(), callTime)
		defer cancel()
		if err := m.tell(ctx, m.member(), id); err != nil {
			m.log.Warn("tell that a sandbox is paused again", "sandbox", id, "err", err)
		}
	})
}

// stay notes the stays of homes here.
func (m *Member) stay(homes []fleet.HomeMessage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range homes {
		if h.Node == m.opts.Name {
			m.stays[h.Sandbox] = max(m.stays[h.Sandbox], h.Stay)
		}
	}
}

// stayOf returns the number of a sandbox's stay here; 0 is not known.
func (m *Member) stayOf(id carrel.ID) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stays[id]
}

// Times of the member's work.
const (
	retryEvery = time.Second
	watchEvery = 250 * time.Millisecond
	// margin is taken off the lease, for the time that holding the sandboxes takes.
	margin = time.Second
	// sweepEvery is after how many renewals the member looks for homes of sandboxes that are gone.
	sweepEvery = 15
)

// Run keeps the membership until ctx ends. Sandboxes run on then: the next daemon joins again.
func (m *Member) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer m.caller.close()
	wg.Go(func() { m.watch(ctx) })
	wg.Go(func() { m.publisher(ctx) })
	for ctx.Err() == nil {
		err := m.round(ctx)
		if ctx.Err() != nil {
			return
		}
		m.log.Warn("no member of the fleet now", "err", err, "hint", carrel.HintOf(err))
		sleep(ctx, retryEvery)
	}
}

// round is one membership: it returns why it ended.
func (m *Member) round(ctx context.Context) error {
	if err := m.certify(ctx); err != nil {
		return err
	}
	sent := clock()
	a, err := call[fleet.MemberAnswer](ctx, m.caller, "enroll node", fleet.PathEnroll, "",
		fleet.EnrollRequest{URL: m.opts.URL, Key: m.opts.Key, Version: m.opts.Version, Taints: m.opts.Taints})
	if err != nil {
		// It was removed, or another machine has taken the name over since its lease expired: only the
		// join token lets it in again, when the name is free.
		if carrel.KindOf(err) == carrel.NotFound || errors.Is(err, fleet.ErrHeld) {
			m.forget()
		}
		return err
	}
	m.renewed(a, sent)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := m.reconcile(ctx, a.Token); err != nil {
		return err
	}
	m.unhold()
	m.log.Info("this node is a member of its fleet", "node", m.opts.Name)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	followed := make(chan error, 1)
	wg.Go(func() { followed <- m.follow(ctx, a.Token) })
	return m.renew(ctx, a.Token, followed)
}

// renew renews the membership until that fails for good, the changes can't be followed, or the lease
// ended meanwhile.
func (m *Member) renew(ctx context.Context, token int64, followed <-chan error) error {
	tick := time.NewTicker(fleet.RenewEvery)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-followed:
			return err
		case <-tick.C:
		}
		if n%sweepEvery == 0 {
			if err := m.sweep(ctx, token); err != nil {
				m.log.Warn("look for homes of sandboxes that are gone", "err", err)
			}
		}
		if m.member() == 0 {
			return errNoLease // others may have taken sandboxes: begin anew
		}
		if err := m.certify(ctx); err != nil {
			m.log.Warn("renew the node's certificate", "err", err)
		}
		sent := clock()
		a, err := raced[fleet.MemberAnswer](ctx, m.caller, "renew membership", fleet.PathRenew, "", fleet.MemberRequest{Token: token})
		switch {
		case err == nil:
			m.renewed(a, sent)
		case answered(err):
			m.hold(err)
			return err
		default:
			m.log.Warn("renew membership", "err", err)
		}
	}
}

// renewed notes a lease that counts from sent.
func (m *Member) renewed(a fleet.MemberAnswer, sent time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.token, m.until, m.draining = a.Token, sent+a.Lease()-margin, a.Draining
}

// watch holds the sandboxes when the lease has ended.
func (m *Member) watch(ctx context.Context) {
	for sleep(ctx, watchEvery) {
		m.mu.Lock()
		ended := !m.held && clock() >= m.until
		m.mu.Unlock()
		if ended {
			m.hold(errNoLease)
		}
	}
}

func (m *Member) hold(why error) {
	m.mu.Lock()
	was := m.held
	m.held = true
	m.mu.Unlock()
	if !was {
		m.log.Error("the sandboxes are held: they may be another node's by now", "why", why)
		m.opts.Sandboxes.Hold(why)
	}
}

func (m *Member) unhold() {
	m.opts.Sandboxes.Unhold()
	m.mu.Lock()
	m.held = false
	m.mu.Unlock()
}

// certify makes sure that there is a certificate with some time left.
func (m *Member) certify(ctx context.Context) error {
	cert := m.certificate()
	now := time.Now()
	if cert != nil && now.Before(cert.Leaf.NotAfter.Add(-certificate.Life/2)) {
		return nil
	}
	var a fleet.JoinAnswer
	var err error
	if cert != nil && now.Before(cert.Leaf.NotAfter) {
		var request []byte
		if request, err = m.key.Request(); err == nil {
			a, err = call[fleet.JoinAnswer](ctx, m.caller, "renew certificate", fleet.PathCertificate, "",
				fleet.JoinRequest{Name: m.opts.Name, Request: request})
		}
	} else {
		a, err = m.caller.join(ctx, m.opts.Name, m.opts.Token, m.key)
	}
	if err != nil {
		return err
	}
	if err := m.takeCertificate(a.Certificate, a.Authority); err != nil {
		return err
	}
	for name, text := range map[string][]byte{certFile: a.Certificate, authorityFile: a.Authority} {
		if err := atomicfile.Write(filepath.Join(m.opts.Dir, name), text, 0o600); err != nil {
			m.log.Warn("keep the node's certificate; the next start joins anew", "err", err)
		}
	}
	return nil
}

// Join gets the node's certificate, if it has no good one.
func (m *Member) Join(ctx context.Context) error { return m.certify(ctx) }

// forget gives up the certificate.
func (m *Member) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cert = nil
}

// sleep waits, and reports whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
