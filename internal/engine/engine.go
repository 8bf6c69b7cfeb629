package engine

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carrel-dev/carrel"
)

// Options configures an [Engine]. Nodes and Dial are required. Zero times are the defaults.
type Options struct {
	Nodes Nodes
	// Dial returns a client of a node's daemon that acts for a project; "" is that of the node's
	// own key, an administrator's. It connects to nothing yet.
	Dial func(n Node, project string) (Remote, error)
	// Owners decides which node a sandbox is on; nil: what the nodes say.
	Owners Owners
	// Tolerates reports whether a project's sandboxes may be placed on nodes with a taint; nil:
	// none may.
	Tolerates func(project, taint string) bool
	// PollEvery is how often a node is asked how busy it is, one second by default. StudyEvery is
	// how often it is asked for its templates and sandboxes, 30 seconds by default.
	PollEvery, StudyEvery time.Duration
	// DeadAfter is how long a node may be silent before it counts as away, 4 seconds by default.
	DeadAfter time.Duration
	// AskWithin bounds one question to a node that is one of many: in a search, in a list, in a
	// poll. It is 2 seconds by default.
	AskWithin time.Duration
	// CallWithin bounds a call that needs no work on its node, 15 seconds by default. What may take
	// longer (a creation, a pause, a snapshot) ends when its node is away.
	CallWithin time.Duration
	// Forget is how long the engine remembers that no node has a sandbox, 2 seconds by default.
	Forget time.Duration
	Log    *slog.Logger
}

// Engine is a [carrel.Service] over many nodes. It is safe for concurrent use.
type Engine struct {
	carrel.NoSecrets
	carrel.NoAudits
	carrel.NoSSHAccess
	carrel.NoChecks
	carrel.NoBuilder
	carrel.NoCatalog
	carrel.NoRegistries
	carrel.NoMetering

	opts     Options
	log      *slog.Logger
	dir      *Directory
	searches searches
	keys     keys
	events   atomic.Int64 // numbers of events that were handed out

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	placing sync.Mutex // held while a node is chosen
	rng     *rand.Rand // guarded by placing

	mu      sync.Mutex
	members []*member // by name
	changed chan struct{}
}

var _ carrel.Service = (*Engine)(nil)

// New returns an engine. It asks the nodes in the background: until the first answers, they are
// away. Errors: Invalid.
func New(o Options) (*Engine, error) {
	o.PollEvery = cmp.Or(o.PollEvery, time.Second)
	o.StudyEvery = cmp.Or(o.StudyEvery, 30*time.Second)
	o.DeadAfter = cmp.Or(o.DeadAfter, 4*time.Second)
	o.AskWithin = cmp.Or(o.AskWithin, 2*time.Second)
	o.CallWithin = cmp.Or(o.CallWithin, 15*time.Second)
	o.Forget = cmp.Or(o.Forget, 2*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	list, _ := o.Nodes.Nodes()
	if err := CheckNodes(list); err != nil {
		return nil, err
	}
	e := &Engine{opts: o, log: o.Log, dir: newDirectory(), searches: newSearches(), keys: newKeys(),
		rng: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), changed: make(chan struct{})}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	changed := e.join()
	e.work.Go(func() {
		for {
			select {
			case <-changed:
				changed = e.join()
			case <-e.ctx.Done():
				return
			}
		}
	})
	return e, nil
}

// join brings the members in line with the list of nodes, and returns the channel that tells of the
// next list.
func (e *Engine) join() <-chan struct{} {
	nodes, changed := e.opts.Nodes.Nodes()
	if err := CheckNodes(nodes); err != nil {
		e.log.Error("the list of nodes is wrong; the last one stays", "err", err)
		return changed
	}
	byName := map[string]Node{}
	for _, n := range nodes {
		byName[n.Name] = n
	}
	var stay, leave []*member
	for _, m := range e.all() {
		n, ok := byName[m.name]
		m.mu.Lock()
		same := ok && n.URL == m.node.URL && n.Key == m.node.Key
		if same {
			m.node = n
		}
		m.mu.Unlock()
		if !same {
			leave = append(leave, m)
			continue
		}
		stay = append(stay, m)
		delete(byName, m.name)
	}
	for _, n := range byName {
		stay = append(stay, newMember(e, n))
	}
	slices.SortFunc(stay, func(a, b *member) int { return strings.Compare(a.name, b.name) })
	e.mu.Lock()
	e.members = stay
	close(e.changed)
	e.changed = make(chan struct{})
	e.mu.Unlock()
	for _, m := range leave {
		m.close()
		e.dir.remove(m.name)
	}
	return changed
}

// all returns the members by name. Nobody changes the result.
func (e *Engine) all() []*member {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.members
}

// member returns the member with a name, or nil.
func (e *Engine) member(name string) *member {
	all := e.all()
	i, ok := slices.BinarySearchFunc(all, name,
		func(m *member, name string) int { return strings.Compare(m.name, name) })
	if !ok {
		return nil
	}
	return all[i]
}

// meet returns the member with a name that is on the list of nodes, or nil if it does not become a
// member soon: the list may be newer than what the engine has made of it.
func (e *Engine) meet(ctx context.Context, name string) *member {
	ctx, cancel := context.WithTimeout(ctx, e.opts.AskWithin)
	defer cancel()
	for {
		_, changed := e.watch()
		if m := e.member(name); m != nil {
			return m
		}
		if !e.listed(name) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// listed reports whether the list of nodes has a name.
func (e *Engine) listed(name string) bool {
	list, _ := e.opts.Nodes.Nodes()
	return slices.ContainsFunc(list, func(n Node) bool { return n.Name == name })
}

// Close implements carrel.Service. Nodes and sandboxes live on.
func (e *Engine) Close() error {
	e.cancel()
	e.work.Wait()
	for _, m := range e.all() {
		m.close()
	}
	return nil
}

// Directory is what the engine knows of where sandboxes are.
func (e *Engine) Directory() *Directory { return e.dir }

// Rebuild empties nothing, but asks every node again for its sandboxes and templates, soon.
func (e *Engine) Rebuild() {
	for _, m := range e.all() {
		m.look()
	}
}

// Status is what the engine knows of a node.
type Status struct {
	Node      string
	Draining  bool
	Away      error // why it is away; nil: it is there
	Ready     bool  // it is there, and has told enough to get sandboxes
	Load      carrel.Load
	Tiers     []carrel.Tier
	Sandboxes int
}

// Status tells about every node, by name.
func (e *Engine) Status() []Status {
	var out []Status
	for _, m := range e.all() {
		n, _ := e.dir.crowd(m.name, "")
		m.mu.Lock()
		out = append(out, Status{Node: m.name, Draining: m.node.Draining, Away: m.why,
			Ready: m.why == nil && m.tiers != nil, Load: m.load, Tiers: m.tiers, Sandboxes: n})
		m.mu.Unlock()
	}
	return out
}

// Away returns why a node is away; nil if it is there, or no member.
func (e *Engine) Away(name string) error {
	m := e.member(name)
	if m == nil {
		return nil
	}
	_, why := m.state()
	return why
}

// projectOf is the project that a call is for; "" for an administrator, who sees all. A caller
// without a project may do nothing here.
func projectOf(ctx context.Context, op string) (string, error) {
	c := carrel.CallerOf(ctx)
	if c.Role == carrel.RoleAdmin {
		return "", nil
	}
	if err := carrel.CheckProject(c.Project); err != nil {
		return "", &carrel.Error{Op: op, Kind: carrel.Forbidden, Err: errors.New("the caller has no project")}
	}
	return c.Project, nil
}

type sandboxKey struct{}

// SandboxIn returns the sandbox that a call to a node is about; "" is none.
func SandboxIn(ctx context.Context) carrel.ID {
	id, _ := ctx.Value(sandboxKey{}).(carrel.ID)
	return id
}

// call calls a node for the caller in ctx. within bounds the call; 0 is no bound but the node's
// life.
func call[T any](ctx context.Context, m *member, op string, id carrel.ID, within time.Duration,
	fn func(ctx context.Context, r Remote) (T, error)) (out T, err error) {
	alive, why := m.state()
	if why != nil && why != errNotAsked { // a new node may be there: the call itself finds out
		return out, unavailable(op, id, m.name, why)
	}
	project, err := projectOf(ctx, op)
	if err != nil {
		return out, err
	}
	r, err := m.remote(project)
	if err != nil {
		return out, err
	}
	inner, cancel := context.WithCancelCause(context.WithValue(ctx, sandboxKey{}, id))
	defer cancel(nil)
	defer context.AfterFunc(alive, func() { cancel(context.Cause(alive)) })()
	if within > 0 {
		var end context.CancelFunc
		inner, end = context.WithTimeout(inner, within)
		defer end()
	}
	out, err = fn(inner, r)
	return out, m.explain(ctx, inner, op, id, err)
}

// answer is one node's part of an answer.
type answer[T any] struct {
	m   *member
	out T
	err error
}

// askAtOnce bounds how many nodes are asked at the same time for one call.
const askAtOnce = 64

// askAll asks every node of the list, each within a bound, and returns the answers in its order.
func askAll[T any](ctx context.Context, members []*member, op string, id carrel.ID, within time.Duration,
	fn func(ctx context.Context, m *member, r Remote) (T, error)) []answer[T] {
	out := make([]answer[T], len(members))
	var wg sync.WaitGroup
	turn := make(chan struct{}, askAtOnce)
	for i, m := range members {
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			v, err := call(ctx, m, op, id, within,
				func(ctx context.Context, r Remote) (T, error) { return fn(ctx, m, r) })
			out[i] = answer[T]{m, v, err}
		})
	}
	wg.Wait()
	return out
}

// definite reports whether an error is the node's word about the question, and not about the node.
func definite(err error) bool {
	switch carrel.KindOf(err) {
	case carrel.Invalid, carrel.Forbidden, carrel.Unsupported, carrel.NotFound, carrel.Conflict:
		return true
	}
	return false
}
