package front

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/engine"
	"github.com/carrel-dev/carrel/internal/fleet"
)

const (
	// known is how long this front remembers where a sandbox is. A node that does not have it any
	// more says so, and the front looks again.
	known = time.Second
	// askTime bounds the question of the database about a sandbox whose place was known before.
	askTime = 500 * time.Millisecond
	// maxKnown bounds how many are remembered.
	maxKnown = 100_000
	// moveWait bounds how long a call waits for a sandbox that moves.
	moveWait = 60 * time.Second
	// moveTime bounds one take-over.
	moveTime = 2 * time.Minute
	// moveTries bounds the nodes that are tried for one sandbox.
	moveTries = 4
)

// homes knows where sandboxes are, and moves them. It is safe for concurrent use.
type homes struct {
	registry fleet.Registry
	nodes    *nodes
	log      *slog.Logger
	lives    lives

	mu     sync.Mutex
	known  map[carrel.ID]seen
	moving map[carrel.ID]*moving
}

// seen is what was read of a home.
type seen struct {
	home fleet.Home
	at   time.Time
}

// moving is a move under way.
type moving struct {
	done chan struct{}
	home fleet.Home
	err  error // set before done is closed
}

var _ engine.Owners = (*homes)(nil)

func newHomes(r fleet.Registry, n *nodes, log *slog.Logger) *homes {
	return &homes{registry: r, nodes: n, log: log, known: map[carrel.ID]seen{}, moving: map[carrel.ID]*moving{}}
}

// Owner implements engine.Owners. It moves a sandbox away from a node that is gone first.
func (h *homes) Owner(ctx context.Context, id carrel.ID) (node string, ok bool, err error) {
	home, err := h.find(ctx, id)
	switch {
	case carrel.KindOf(err) == carrel.NotFound && !errors.Is(err, errGone) && !h.bygone(id):
		return "", false, nil // it may be too new for the records
	case err != nil:
		return "", false, err
	}
	return home.Node, true, nil
}

// errGone is in an error that says that no node has a sandbox, or ever will: nobody needs to be asked.
var errGone = errors.New("no node has it any more")

// bygone reports whether the node that this front knows a sandbox on has no lease. What has no home
// has ended then: the node told the fleet of all that it had.
func (h *homes) bygone(id carrel.ID) bool {
	name, ok := h.nodes.engine.Directory().Node(id)
	n, there := h.nodes.node(name)
	return ok && there && !n.Alive()
}

// find returns the home of a sandbox, on a node that may be called.
func (h *homes) find(ctx context.Context, id carrel.ID) (fleet.Home, error) {
	h.mu.Lock()
	m, s := h.moving[id], h.known[id]
	h.mu.Unlock()
	if m != nil {
		return m.wait(ctx, id)
	}
	if time.Since(s.at) < known {
		return s.home, nil
	}
	within, cancel := ctx, context.CancelFunc(func() {})
	if !s.at.IsZero() {
		within, cancel = context.WithTimeout(ctx, askTime)
	}
	home, err := h.registry.Home(within, id)
	cancel()
	switch {
	case err != nil && !s.at.IsZero() && ctx.Err() == nil && carrel.KindOf(err) != carrel.NotFound:
		// Without the database nothing moves. If it moved before, its old node says so.
		return s.home, nil
	case err != nil:
		return fleet.Home{}, err
	case home.State == fleet.Ended:
		return fleet.Home{}, &carrel.Error{Op: "find sandbox", Kind: carrel.NotFound, ID: id, Err: fmt.Errorf("it was ended: %w", errGone)}
	case home.State == fleet.Moving, home.Left <= 0:
		return h.rescue(ctx, home)
	}
	if err := h.nodes.meet(ctx, home.Node); err != nil {
		return fleet.Home{}, err
	}
	h.note(home)
	return home, nil
}

// note remembers a home.
func (h *homes) note(home fleet.Home) {
	home.Passport = nil
	h.lives.end(home.Sandbox, home.Node)
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.known) >= maxKnown {
		clear(h.known) // they are good for a second only
	}
	h.known[home.Sandbox] = seen{home, time.Now()}
}

// forget makes the next call look again.
func (h *homes) forget(id carrel.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s, ok := h.known[id]; ok {
		s.at = time.Unix(0, 1) // it is still better than nothing when the database is away
		h.known[id] = s
	}
}

// maker returns the home of a sandbox for its project and the key that made it, which never change.
func (h *homes) maker(ctx context.Context, id carrel.ID) (fleet.Home, bool, error) {
	h.mu.Lock()
	s, ok := h.known[id]
	h.mu.Unlock()
	if ok {
		return s.home, true, nil
	}
	home, err := h.registry.Home(ctx, id)
	if carrel.KindOf(err) == carrel.NotFound {
		return home, false, nil
	}
	return home, err == nil, err
}

// project returns whose sandbox it is.
func (h *homes) project(ctx context.Context, id carrel.ID) (string, bool, error) {
	home, found, err := h.maker(ctx, id)
	return home.Project, found, err
}

func (m *moving) wait(ctx context.Context, id carrel.ID) (fleet.Home, error) {
	ctx, cancel := context.WithTimeout(ctx, moveWait)
	defer cancel()
	select {
	case <-m.done:
		return m.home, m.err
	case <-ctx.Done():
		return fleet.Home{}, &carrel.Error{Op: "find sandbox", Kind: carrel.Unavailable, ID: id, RetryAfter: time.Second,
			Err: errors.New("it moves to another node just now"), Hint: "try again in a moment"}
	}
}

// move runs one move of a sandbox; callers that come meanwhile wait for it.
func (h *homes) move(ctx context.Context, id carrel.ID, fn func(context.Context) (fleet.Home, error)) (fleet.Home, error) {
	h.mu.Lock()
	m := h.moving[id]
	if m == nil {
		m = &moving{done: make(chan struct{})}
		h.moving[id] = m
		delete(h.known, id)
		// The move goes on when its caller leaves: others wait for it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), moveTime)
		go func() {
			defer cancel()
			m.home, m.err = fn(ctx)
			h.mu.Lock()
			delete(h.moving, id)
			h.mu.Unlock()
			close(m.done)
		}()
	}
	h.mu.Unlock()
	return m.wait(ctx, id)
}

// rescue takes a sandbox over that its node does not have yet, or can't be asked for any more.
func (h *homes) rescue(ctx context.Context, home fleet.Home) (fleet.Home, error) {
	if home.Passport == nil && home.State != fleet.Moving {
		return fleet.Home{}, lost(home)
	}
	return h.move(ctx, home.Sandbox, func(ctx context.Context) (fleet.Home, error) {
		home, err := h.registry.Home(ctx, home.Sandbox) // another front may have been first
		if err != nil {
			return home, err
		}
		if home.Left > 0 && home.State != fleet.Moving {
			return home, nil
		}
		return h.takeOver(ctx, home, home.Node)
	})
}

// lost is the error for a sandbox whose node is gone, and which nobody else can take. It is NotFound
// as soon as the fleet's records say that it is lost, and Unavailable in the second before.
func lost(home fleet.Home) error {
	e := &carrel.Error{Op: "find sandbox", Kind: carrel.Unavailable, ID: home.Sandbox, Field: "node",
		Err:  fmt.Errorf("the lease of its node %s has expired, and the sandbox was %s", home.Node, home.State),
		Hint: "it goes on when the node comes back; automatic snapshots (carrel lifecycle --checkpoint-every) let others take over"}
	if home.State == fleet.Lost {
		name, _, _ := strings.Cut(strings.TrimPrefix(home.Node, "~"), "~")
		e.Kind, e.Err = carrel.NotFound, fmt.Errorf("it was lost with its node %s, on which it ran: %w", name, errGone)
		e.Hint = "make a new one; automatic snapshots (carrel lifecycle --checkpoint-every) let others take over"
	}
	return e
}

// takeOver gives a sandbox a home on another node than one, and has that node take it over. A node
// that can't is not the end: another is tried.
func (h *homes) takeOver(ctx context.Context, home fleet.Home, but string) (fleet.Home, error) {
	var p carrel.Passport
	if err := json.Unmarshal(home.Passport, &p); err != nil {
		return home, &carrel.Error{Op: "move sandbox", Kind: carrel.Internal, ID: home.Sandbox, Field: "passport", Err: err}
	}
	tried := map[string]bool{but: true}
	if home.State == fleet.Moving && home.Left > 0 { // another front began this; its node may have it already
		delete(tried, home.Node)
	}
	var last error
	for range moveTries {
		to, ok := h.choose(p, tried)
		if !ok {
			break
		}
		tried[to.Name] = true
		if home.Node != to.Name || home.State != fleet.Moving {
			next, err := h.registry.Move(ctx, home.Sandbox, home.Token, fleet.Member{Name: to.Name, Token: to.Token})
			if err != nil {
				return home, err
			}
			home = next
		}
		if last = h.arrive(ctx, home, to, p); last == nil {
			home.State, home.Left = fleet.Paused, fleet.Lease
			h.log.Info("a sandbox moved", "sandbox", home.Sandbox, "to", to.Name)
			h.note(home)
			return home, nil
		}
		h.log.Warn("a node could not take a sandbox over", "sandbox", home.Sandbox, "node", to.Name, "err", last)
	}
	if last == nil {
		last = errors.New("no other node is there")
	}
	return home, &carrel.Error{Op: "move sandbox", Kind: carrel.Unavailable, ID: home.Sandbox, Err: fmt.Errorf("no node could take it over: %w", last),
		Hint: cmp.Or(carrel.HintOf(last), "look at the snapshot store and at 'carrel node ls'; the sandbox stays on record, and the next call tries again")}
}

// arrive has a node take over a sandbox whose home it is.
func (h *homes) arrive(ctx context.Context, home fleet.Home, to fleet.Node, p carrel.Passport) error {
	c, err := h.nodes.client(to.Name, "")
	if err != nil {
		return err
	}
	if _, err := c.Movement().Adopt(ctx, p); err != nil {
		return err
	}
	return h.registry.Arrive(ctx, home.Sandbox, home.Token)
}

// choose returns a node that may take a sandbox over: the less busy of two, as for new sandboxes.
func (h *homes) choose(p carrel.Passport, not map[string]bool) (fleet.Node, bool) {
	free := map[string]float64{}
	var fit []fleet.Node
	for _, s := range h.nodes.status() {
		n, ok := h.nodes.node(s.Node)
		if !ok || not[s.Node] || !s.Ready || s.Draining || !slices.Contains(s.Tiers, p.Needs.Tier) {
			continue
		}
		if s.Load.MemoryTotal > 0 {
			free[n.Name] = float64(s.Load.Memory) / float64(s.Load.MemoryTotal)
		}
		fit = append(fit, n)
	}
	if len(fit) == 0 {
		return fleet.Node{}, false
	}
	a, b := fit[rand.IntN(len(fit))], fit[rand.IntN(len(fit))]
	if free[b.Name] > free[a.Name] {
		a = b
	}
	return a, true
}
