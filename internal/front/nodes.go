package front

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/engine"
	"github.com/carrel-dev/carrel/internal/fleet"
	"github.com/carrel-dev/carrel/internal/fleet/certificate"
)

// lookEvery is how often a front reads the list of nodes.
const lookEvery = time.Second

// nodes are the fleet's nodes as this front knows them. They are the engine's list of nodes. It is
// safe for concurrent use.
type nodes struct {
	registry fleet.Registry
	issuer   *certificate.Issuer
	own      func() *tls.Certificate // the front's
	log      *slog.Logger
	engine   *engine.Engine    // set before anything is served
	lost     func(node string) // is called for a node whose lease has expired; set as engine
	// behalf says to a node for whom it is asked; set as engine.
	behalf func(context.Context) (string, error)

	meeting sync.Mutex // held while the list is read for an unknown node

	mu      sync.Mutex
	byName  map[string]fleet.Node
	list    []engine.Node
	changed chan struct{}
	look    chan struct{}
	dialled map[[4]string]*client.Client // by node, URL, key and project
}

var _ engine.Nodes = (*nodes)(nil)

func newNodes(r fleet.Registry, i *certificate.Issuer, log *slog.Logger) *nodes {
	return &nodes{registry: r, issuer: i, log: log, byName: map[string]fleet.Node{}, changed: make(chan struct{}),
		look: make(chan struct{}, 1), dialled: map[[4]string]*client.Client{}}
}

// Nodes implements engine.Nodes.
func (n *nodes) Nodes() ([]engine.Node, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.list, n.changed
}

// read reads the list from the registry.
func (n *nodes) read(ctx context.Context) error {
	all, err := n.registry.Nodes(ctx)
	if err != nil {
		return err
	}
	list := make([]engine.Node, 0, len(all))
	byName := make(map[string]fleet.Node, len(all))
	urls := map[string]string{}
	for _, f := range all {
		if !f.Alive() && n.lost != nil {
			n.lost(f.Name)
		}
		if f.URL == "" {
			continue // it has a name, and has not enrolled yet
		}
		// Two nodes that say one address would be one daemon. The one with the newer start is right.
		if other, twice := urls[f.URL]; twice {
			if byName[other].Token > f.Token {
				continue
			}
			delete(byName, other)
			list = slices.DeleteFunc(list, func(e engine.Node) bool { return e.Name == other })
		}
		urls[f.URL] = f.Name
		byName[f.Name] = f
		list = append(list, engine.Node{Name: f.Name, URL: f.URL, Key: f.Key, Taints: f.Taints, Draining: f.Draining})
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.byName = byName
	if !slices.EqualFunc(n.list, list, same) {
		n.list = list
		close(n.changed)
		n.changed = make(chan struct{})
	}
	return nil
}

func same(a, b engine.Node) bool {
	return a.Name == b.Name && a.URL == b.URL && a.Key == b.Key && a.Draining == b.Draining && slices.Equal(a.Taints, b.Taints)
}

// soon makes run read the list at once.
func (n *nodes) soon() {
	select {
	case n.look <- struct{}{}:
	default:
	}
}

// run reads the list until ctx ends.
func (n *nodes) run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-n.look:
		case <-ctx.Done():
			return
		}
		if err := n.read(ctx); err != nil && ctx.Err() == nil {
			n.log.Warn("read the list of nodes", "err", err)
		}
	}
}

// node returns what the registry said last of a node.
func (n *nodes) node(name string) (fleet.Node, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f, ok := n.byName[name]
	return f, ok
}

// meet reads the list if a node is not on it. A node may have joined at another front just now, and
// have got a sandbox there.
func (n *nodes) meet(ctx context.Context, name string) error {
	if _, ok := n.node(name); ok {
		return nil
	}
	n.meeting.Lock()
	defer n.meeting.Unlock()
	if _, ok := n.node(name); ok { // another call has read it meanwhile
		return nil
	}
	return n.read(ctx)
}

// status is what the engine knows of the nodes.
func (n *nodes) status() []engine.Status { return n.engine.Status() }

// tls is the configuration of connections to a node: to the machine that has its name now.
func (n *nodes) tls(name string) *tls.Config {
	return certificate.ClientConfig(n.issuer.Roots(), n.own, certificate.IsMachine(name, func() []byte {
		f, _ := n.node(name)
		return f.Public
	}))
}

// dial is the engine's way to a node.
func (n *nodes) dial(e engine.Node, project string) (engine.Remote, error) {
	return n.open(e.Name, e.URL, e.Key, project)
}

func (n *nodes) open(name, url, key, project string) (*client.Client, error) {
	opts := []client.Option{client.WithTLSConfig(n.tls(name)), client.WithDialer(dialNode),
		client.WithCaller(func(ctx context.Context) (string, error) { return n.behalf(ctx) })}
	if project != "" {
		opts = append(opts, client.WithProject(project))
	}
	svc, err := client.New(url, key, opts...)
	if err != nil {
		return nil, err
	}
	return svc.(*client.Client), nil
}

// maxClients bounds the clients that are kept.
const maxClients = 1024

// client returns a client of a node's daemon, for a project; "" is for the whole node.
func (n *nodes) client(name, project string) (*client.Client, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f, ok := n.byName[name]
	if !ok {
		return nil, &carrel.Error{Op: "call node", Kind: carrel.NotFound, Field: "node", Err: fmt.Errorf("there is no node %.80q", name)}
	}
	at := [4]string{name, f.URL, f.Key, project}
	if c := n.dialled[at]; c != nil {
		return c, nil
	}
	c, err := n.open(name, f.URL, f.Key, project)
	if err != nil {
		return nil, err
	}
	if len(n.dialled) >= maxClients {
		n.dropLocked()
	}
	n.dialled[at] = c
	return c, nil
}

// dropLocked drops the clients. Calls under way end by themselves.
func (n *nodes) dropLocked() {
	for _, c := range n.dialled {
		_ = c.Close() // drops idle connections
	}
	clear(n.dialled)
}

func (n *nodes) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dropLocked()
}

// ready are the nodes that answer, by name.
func (n *nodes) ready() (out []fleet.Node, silent []string) {
	for _, s := range n.status() {
		f, ok := n.node(s.Node)
		switch {
		case ok && s.Away == nil:
			out = append(out, f)
		default:
			silent = append(silent, s.Node)
		}
	}
	slices.SortFunc(out, func(a, b fleet.Node) int { return strings.Compare(a.Name, b.Name) })
	return out, silent
}

// every are all nodes, for a change that must be made on each of them. what names the thing in the
// hint. Error: Unavailable when one does not answer.
func (n *nodes) every(op, what string) ([]fleet.Node, error) {
	ready, silent := n.ready()
	if len(silent) > 0 || len(ready) == 0 {
		return nil, &carrel.Error{Op: op, Kind: carrel.Unavailable, RetryAfter: time.Second,
			Err:  fmt.Errorf("these nodes don't answer: %s", strings.Join(silent, ", ")),
			Hint: "a " + what + " changes on all nodes or on none: try again when they are back, or remove them with carrel node rm"}
	}
	return ready, nil
}

var errNoNodes = errors.New("no node of the fleet answers")
