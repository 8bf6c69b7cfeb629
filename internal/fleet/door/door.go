// Package door is a front's door for the nodes of its fleet. A node joins here, renews its
// membership and says what its sandboxes do. It speaks HTTP with messages of package fleet, over TLS
// with certificates of package certificate: a node can speak of itself only.
package door

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/fleet"
	"github.com/carrel-dev/carrel/internal/fleet/certificate"
)

// Options configure a [Door]. All fields but Log are required.
type Options struct {
	Registry fleet.Registry
	Issuer   *certificate.Issuer
	// Token is the fleet's join token, a secret of [certificate.MinToken] characters or more.
	Token string
	// Lease is how long a membership lasts; 0 is [fleet.Lease].
	Lease time.Duration
	// Changed is called when a node joined or came back.
	Changed func()
	Log     *slog.Logger
}

// Door serves nodes. It is safe for concurrent use.
type Door struct {
	opts  Options
	joins chan struct{} // bounds joins under way: each costs a signature before it is known to be good

	mu    sync.Mutex
	cert  *tls.Certificate
	until time.Time
}

// maxJoins bounds the joins at once.
const maxJoins = 8

// New returns a door. Error: Invalid for a short token.
func New(o Options) (*Door, error) {
	if len(o.Token) < certificate.MinToken {
		return nil, &carrel.Error{Op: "open door for nodes", Kind: carrel.Invalid, Field: "join-token-file",
			Err:  fmt.Errorf("the join token has %d characters", len(o.Token)),
			Hint: fmt.Sprintf("use %d or more random ones: openssl rand -hex 32", certificate.MinToken)}
	}
	if o.Lease == 0 {
		o.Lease = fleet.Lease
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	d := &Door{opts: o, joins: make(chan struct{}, maxJoins)}
	if d.Certificate() == nil {
		return nil, &carrel.Error{Op: "open door for nodes", Kind: carrel.Internal, Err: errors.New("the front's certificate can't be made")}
	}
	return d, nil
}

// Certificate returns the front's certificate, with which it also calls nodes. It is made anew after
// half of its life.
func (d *Door) Certificate() *tls.Certificate {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cert == nil || time.Now().After(d.until) {
		if c, err := d.opts.Issuer.Front(); err == nil {
			d.cert, d.until = &c, time.Now().Add(certificate.Life/2)
		} else {
			d.opts.Log.Error("make the front's certificate", "err", err)
		}
	}
	return d.cert
}

// Times of a node's request.
const (
	headerTime  = 10 * time.Second
	requestTime = 30 * time.Second
)

// Serve serves nodes on a listener until ctx ends.
func (d *Door) Serve(ctx context.Context, l net.Listener) error {
	cfg := certificate.ServerConfig(d.opts.Issuer.Roots(), d.Certificate, true, func(p certificate.Peer) error {
		if p.Front {
			return errors.New("fronts don't call fronts")
		}
		return nil
	})
	cfg.NextProtos = []string{"http/1.1"}
	srv := &http.Server{Handler: d, ReadHeaderTimeout: headerTime, ReadTimeout: requestTime, WriteTimeout: requestTime,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(d.opts.Log.Handler(), slog.LevelDebug)}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	err := srv.Serve(tls.NewListener(l, cfg))
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// ServeHTTP implements http.Handler.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, err := d.answer(w, r)
	w.Header().Set("Content-Type", "application/json")
	if err == nil {
		_ = json.NewEncoder(w).Encode(answer) // a node that left does not read it
		return
	}
	kind := carrel.KindOf(err)
	w.WriteHeader(status(kind))
	msg := fleet.ErrorMessage{Kind: string(kind), Error: err.Error(), Hint: carrel.HintOf(err),
		Fenced: errors.Is(err, fleet.ErrFenced), Held: errors.Is(err, fleet.ErrHeld), Limit: carrel.LimitOf(err)}
	if e, ok := errors.AsType[*carrel.Error](err); ok {
		msg.Field = e.Field
	}
	_ = json.NewEncoder(w).Encode(msg)
}

func status(k carrel.Kind) int {
	switch k {
	case carrel.Invalid:
		return http.StatusBadRequest
	case carrel.Unauthenticated:
		return http.StatusUnauthorized
	case carrel.Forbidden:
		return http.StatusForbidden
	case carrel.NotFound:
		return http.StatusNotFound
	case carrel.Conflict:
		return http.StatusConflict
	case carrel.Exhausted:
		return http.StatusTooManyRequests
	case carrel.Unavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

func (d *Door) answer(w http.ResponseWriter, r *http.Request) (any, error) {
	if r.Method != http.MethodPost {
		return nil, &carrel.Error{Op: "serve node", Kind: carrel.NotFound, Err: errors.New("there is only POST here")}
	}
	if r.TLS == nil {
		return nil, &carrel.Error{Op: "serve node", Kind: carrel.Unauthenticated, Err: errors.New("nodes speak TLS")}
	}
	r.Body = http.MaxBytesReader(w, r.Body, fleet.MaxMessage)
	if r.URL.Path == fleet.PathJoin {
		return d.join(r)
	}
	peer, err := certificate.Check(d.opts.Issuer.Roots(), *r.TLS)
	if err == nil {
		err = isNode(peer)
	}
	if err != nil {
		return nil, err
	}
	switch r.URL.Path {
	case fleet.PathCertificate:
		return d.renewCertificate(r, peer)
	case fleet.PathEnroll:
		return d.enroll(r, peer)
	}
	return d.member(r, peer)
}

func isNode(p certificate.Peer) error {
	if p.Node == "" {
		return &carrel.Error{Op: "serve node", Kind: carrel.Forbidden, Err: errors.New("this door is for nodes")}
	}
	return nil
}

// read reads a message.
func read[T any](r *http.Request) (m T, err error) {
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err = dec.Decode(&m); err == nil {
		if _, more := dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is more after the message")
		}
	}
	if err != nil {
		err = &carrel.Error{Op: "read message", Kind: carrel.Invalid, Field: "body", Err: err,
			Hint: "do the node and the front have builds that know each other?"}
	}
	return m, err
}

// join gives a node its first certificate, for a proof of the join token.
func (d *Door) join(r *http.Request) (any, error) {
	const op = "join fleet"
	select {
	case d.joins <- struct{}{}:
		defer func() { <-d.joins }()
	default:
		return nil, &carrel.Error{Op: op, Kind: carrel.Unavailable, Err: errors.New("too many nodes join at once")}
	}
	m, err := read[fleet.JoinRequest](r)
	if err != nil {
		return nil, err
	}
	if !certificate.Proves(m.Proof, d.opts.Token, certificate.NodeSide, *r.TLS, []byte(m.Name), m.Request) {
		d.opts.Log.Warn("a node could not prove the join token", "node", fmt.Sprintf("%.80q", m.Name), "from", r.RemoteAddr)
		return nil, &carrel.Error{Op: op, Kind: carrel.Forbidden, Field: "join-token-file",
			Err:  errors.New("the proof of the join token is wrong"),
			Hint: "give the node the same join token as the fronts"}
	}
	if err := fleet.CheckName(m.Name); err != nil {
		return nil, err
	}
	public, err := certificate.RequestKey(m.Request)
	if err != nil {
		return nil, err
	}
	if err := d.opts.Registry.Admit(r.Context(), m.Name, public); err != nil {
		return nil, err
	}
	return d.sign(r, m)
}

func (d *Door) sign(r *http.Request, m fleet.JoinRequest) (any, error) {
	cert, err := d.opts.Issuer.Node(m.Name, m.Request)
	if err != nil {
		return nil, err
	}
	a := fleet.JoinAnswer{Certificate: cert, Authority: d.opts.Issuer.CertPEM()}
	a.Proof, err = certificate.Prove(d.opts.Token, certificate.FrontSide, *r.TLS, a.Certificate, a.Authority)
	return a, err
}

// renewCertificate gives a node a new certificate of the same name and key.
func (d *Door) renewCertificate(r *http.Request, peer certificate.Peer) (any, error) {
	m, err := read[fleet.JoinRequest](r)
	if err != nil {
		return nil, err
	}
	public, err := certificate.RequestKey(m.Request)
	if err != nil {
		return nil, err
	}
	if string(public) != string(peer.Public) || m.Name != peer.Node {
		return nil, &carrel.Error{Op: "renew certificate", Kind: carrel.Forbidden, Field: "request",
			Err: errors.New("it asks for another name or key than those of its certificate")}
	}
	// A name that was removed gets no new certificate.
	if err := d.known(r.Context(), peer); err != nil {
		return nil, err
	}
	return d.sign(r, m)
}

// known returns an error unless the node is still one of the fleet.
func (d *Door) known(ctx context.Context, peer certificate.Peer) error {
	list, err := d.opts.Registry.Nodes(ctx)
	if err != nil {
		return err
	}
	for _, n := range list {
		if n.Name == peer.Node && string(n.Public) == string(peer.Public) {
			return nil
		}
	}
	return &carrel.Error{Op: "check node", Kind: carrel.NotFound, Field: "name",
		Err:  fmt.Errorf("node %s was removed from the fleet", peer.Node),
		Hint: "it joins again by itself if it has the join token"}
}

func (d *Door) enroll(r *http.Request, peer certificate.Peer) (any, error) {
	m, err := read[fleet.EnrollRequest](r)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(m.URL)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.Path != "" || u.RawQuery != "" || u.User != nil {
		return nil, &carrel.Error{Op: "enroll node", Kind: carrel.Invalid, Field: "fleet-url",
			Err:  fmt.Errorf("%.100q is not the URL of a node", m.URL),
			Hint: "it looks like https://10.0.0.5:7072, and fronts must reach it"}
	}
	n, err := d.opts.Registry.Enroll(r.Context(), fleet.Node{Name: peer.Node, Public: peer.Public,
		URL: m.URL, Key: m.Key, Version: m.Version, Taints: m.Taints}, d.opts.Lease)
	if err != nil {
		return nil, err
	}
	d.opts.Log.Info("a node is a member", "node", n.Name, "url", n.URL, "version", n.Version)
	d.opts.Changed()
	return d.membership(n), nil
}

func (d *Door) membership(n fleet.Node) fleet.MemberAnswer {
	return fleet.MemberAnswer{Token: n.Token, LeaseMS: d.opts.Lease.Milliseconds(), Draining: n.Draining}
}

// member carries out what a member asks for.
func (d *Door) member(r *http.Request, peer certificate.Peer) (any, error) {
	q, err := read[fleet.MemberRequest](r)
	if err != nil {
		return nil, err
	}
	if len(q.Homes) > fleet.MaxClaims || len(q.IDs) > fleet.MaxClaims {
		return nil, &carrel.Error{Op: "read message", Kind: carrel.Invalid, Field: "homes",
			Err: fmt.Errorf("more than %d in one message", fleet.MaxClaims)}
	}
	ctx, reg, m := r.Context(), d.opts.Registry, fleet.Member{Name: peer.Node, Token: q.Token, Public: peer.Public}
	switch r.URL.Path {
	case fleet.PathRenew:
		n, err := reg.Renew(ctx, m, d.opts.Lease)
		return d.membership(n), err
	case fleet.PathClaim:
		return d.claim(ctx, m, q.Homes)
	case fleet.PathHomes:
		if err := d.known(ctx, peer); err != nil {
			return nil, err
		}
		list, err := reg.Homes(ctx, m.Name)
		var out fleet.MemberAnswer
		for _, h := range list {
			out.Homes = append(out.Homes, message(h))
		}
		return out, err
	case fleet.PathBegin:
		h, err := reg.Begin(ctx, m, q.ID)
		return fleet.MemberAnswer{Homes: []fleet.HomeMessage{message(h)}}, err
	case fleet.PathPublish:
		return fleet.MemberAnswer{}, reg.Publish(ctx, m, q.ID, q.Stay, q.Passport, q.Paused)
	case fleet.PathEnd:
		return fleet.MemberAnswer{}, reg.End(ctx, m, q.IDs...)
	}
	return nil, &carrel.Error{Op: "serve node", Kind: carrel.NotFound, Err: errors.New("there is no such path")}
}

func (d *Door) claim(ctx context.Context, m fleet.Member, claims []fleet.HomeMessage) (any, error) {
	homes := make([]fleet.Home, len(claims))
	for i, c := range claims {
		if _, err := carrel.ParseID(string(c.Sandbox)); err != nil || c.State != fleet.Running && c.State != fleet.Paused || !c.Load.Sound() {
			return nil, &carrel.Error{Op: "claim sandboxes", Kind: carrel.Invalid, Field: "homes",
				Err: fmt.Errorf("sandbox %.80q in state %.20q of size %v", c.Sandbox, c.State, c.Load)}
		}
		homes[i] = fleet.Home{Sandbox: c.Sandbox, Project: c.Project, State: c.State, Token: c.Stay, Load: c.Load}
	}
	got, err := d.opts.Registry.Claim(ctx, m, homes...)
	if err != nil {
		return nil, err
	}
	var out fleet.MemberAnswer
	for _, h := range got {
		out.Homes = append(out.Homes, message(h))
	}
	return out, nil
}

func message(h fleet.Home) fleet.HomeMessage {
	return fleet.HomeMessage{Sandbox: h.Sandbox, Project: h.Project, State: h.State, Node: h.Node, Stay: h.Token}
}
