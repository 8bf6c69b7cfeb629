package engine

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/placement"
)

// keys remembers to which node the creations with idempotency keys went.
type keys struct {
	mu    sync.Mutex
	nodes map[sentKey]*list.Element // of *sent
	order *list.List                // of the same, the oldest first
}

// sentKey is one project's key.
type sentKey struct{ project, key string }

type sent struct {
	key  sentKey
	node string
	at   time.Time
}

// A node remembers a key for a day, and so do keys.
const (
	keysFor = 24 * time.Hour
	maxKeys = 100_000
)

func newKeys() keys { return keys{nodes: map[sentKey]*list.Element{}, order: list.New()} }

// enter returns the node to which a key belongs. For a new key that is the given one, and fresh.
func (k *keys) enter(key sentKey, node string) (at string, fresh bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for el := k.order.Front(); el != nil; el = k.order.Front() {
		s := el.Value.(*sent)
		if time.Since(s.at) < keysFor && k.order.Len() < maxKeys {
			break
		}
		k.order.Remove(el)
		delete(k.nodes, s.key)
	}
	if el := k.nodes[key]; el != nil {
		return el.Value.(*sent).node, false
	}
	k.nodes[key] = k.order.PushBack(&sent{key, node, time.Now()})
	return node, true
}

// node is the node to which a key belongs; "" for a new key.
func (k *keys) node(key sentKey) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if el := k.nodes[key]; el != nil {
		return el.Value.(*sent).node
	}
	return ""
}

// drop forgets a key with which nothing happened on a node.
func (k *keys) drop(key sentKey, node string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if el := k.nodes[key]; el != nil && el.Value.(*sent).node == node {
		k.order.Remove(el)
		delete(k.nodes, key)
	}
}

// creation is one creation on its way to a node.
type creation struct {
	e       *Engine
	opts    carrel.CreateOptions
	project string
	owner   string // the project that will own the sandbox
	home    *member
	tried   map[string]bool
	last    error // of the node that was tried last
	// lacking says that the nodes that were tried have no such template.
	lacking bool
}

const opCreate = "create sandbox"

// maxTries bounds the nodes that are tried for one creation.
const maxTries = 16

// Create implements carrel.Sandboxes.
func (e *Engine) Create(ctx context.Context, opts carrel.CreateOptions) (carrel.Sandbox, error) {
	if err := carrel.CheckIdempotencyKey(opts.IdempotencyKey); err != nil {
		return carrel.Sandbox{}, err
	}
	project, err := projectOf(ctx, opCreate)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	c := &creation{e: e, opts: opts, project: project, owner: cmp.Or(project, carrel.CallerOf(ctx).Project),
		tried: map[string]bool{}}
	if ref, err := carrel.ParseTemplateRef(opts.Template); err == nil {
		if id, ok := ref.SnapshotID(); ok {
			if c.home, err = e.snapshotNode(ctx, opCreate, string(id)); err != nil {
				return carrel.Sandbox{}, err
			}
		}
	}
	for len(c.tried) < maxTries {
		m := c.choose()
		if m == nil {
			break
		}
		sb, err := c.try(ctx, m)
		if err == nil || !c.nothingHappened(err) || ctx.Err() != nil {
			return sb, err
		}
		c.tried[m.name], c.last = true, err
		if opts.IdempotencyKey != "" {
			e.keys.drop(sentKey{c.owner, opts.IdempotencyKey}, m.name)
		}
	}
	return carrel.Sandbox{}, c.refusal()
}

// choose returns the next node to try; nil when there is none.
func (c *creation) choose() *member {
	members := c.e.all()
	if key := c.opts.IdempotencyKey; key != "" {
		if name := c.e.keys.node(sentKey{c.owner, key}); name != "" {
			if m := c.e.member(name); m != nil && !c.tried[name] {
				return m
			}
		}
	}
	c.e.placing.Lock()
	defer c.e.placing.Unlock()
	needs := placement.Needs{Tier: c.opts.Tier}
	if t := c.e.opts.Tolerates; t != nil {
		needs.Tolerates = func(taint string) bool { return t(c.owner, taint) }
	}
	p := placement.Placer{Policy: placement.Locality, Rand: c.e.rng, Views: make([]placement.View, len(members))}
	nodes := make([]placement.Node, len(members))
	w := placement.Work{Memory: expectedMemory, Queue: expectedQueue, Home: -1}
	for i, m := range members {
		nodes[i], p.Views[i] = m.placeable()
		if c.tried[m.name] || c.home != nil && m != c.home {
			nodes[i].Away = true // for this creation
		}
		if m == c.home {
			w.Home = i
		}
	}
	w.Able = placement.Able(nodes, needs)
	if key := c.opts.IdempotencyKey; key != "" {
		// What the nodes have is left out: another engine may have heard more or less of it.
		if at := byHash(members, w.Able, c.owner, key); at >= 0 {
			members[at].placed(w)
			return members[at]
		}
		return nil
	}
	warm, has := c.near(members, w.Able)
	if len(has) > 0 {
		w.Able = has
	}
	if near := warm; len(near) > 0 {
		w.Near = func(rng *rand.Rand) int { return near[rng.IntN(len(near))] }
	}
	w.Crowd = func(i int) float64 {
		all, own := c.e.dir.crowd(members[i].name, c.owner)
		return float64(all)*crowdWeight + float64(own)*projectWeight
	}
	if at := p.Place(w); at >= 0 {
		members[at].placed(w)
		return members[at]
	}
	return nil
}

// What a sandbox is expected to take of a node until the node's next report, as parts of it.
const (
	expectedMemory = 0.002
	expectedQueue  = 0.02 // seconds
)

// What other sandboxes on a node cost: a hundred of the same project count as a twentieth of the
// node's memory. So a project spreads over nodes that are about equally busy.
const (
	crowdWeight   = 0.0001
	projectWeight = 0.0005
)

// near returns those of the able nodes that have a warm sandbox of the template, and those that
// have the template.
func (c *creation) near(members []*member, able []int) (warm, has []int) {
	template := cmp.Or(c.opts.Template, "base")
	for _, i := range able {
		h, w := members[i].offers(template)
		if h {
			has = append(has, i)
		}
		if w {
			warm = append(warm, i)
		}
	}
	return warm, has
}

// byHash returns the able node with the highest hash of its name and the key; −1 without one. When
// a node comes or goes, only the keys of that node move.
func byHash(members []*member, able []int, project, key string) int {
	best, most := -1, uint64(0)
	for _, i := range able {
		h := fnv.New64a()
		_, _ = fmt.Fprintf(h, "%s\x00%s\x00%s", members[i].name, project, key) // never fails
		sum := h.Sum64()
		sum ^= sum >> 31
		sum *= 0x9e3779b97f4a7c15 // short texts differ in few bits of an FNV hash
		sum ^= sum >> 29
		if best < 0 || sum > most {
			best, most = i, sum
		}
	}
	return best
}

// try sends the creation to a node.
func (c *creation) try(ctx context.Context, m *member) (carrel.Sandbox, error) {
	fresh := true
	if key := c.opts.IdempotencyKey; key != "" {
		var name string
		if name, fresh = c.e.keys.enter(sentKey{c.owner, key}, m.name); name != m.name {
			// Another call with the key was faster.
			other := c.e.member(name)
			if other == nil {
				return carrel.Sandbox{}, unavailable(opCreate, "", name, errLeft)
			}
			m = other
		}
	}
	sb, err := call(ctx, m, opCreate, "", 0, func(ctx context.Context, r Remote) (carrel.Sandbox, error) {
		return r.Create(ctx, c.opts)
	})
	switch {
	case err != nil && !fresh && notSent(err):
		// An earlier request with the key may have made the sandbox, before the node went away.
		return carrel.Sandbox{}, unavailable(opCreate, "", m.name, errEarlier)
	case err != nil && ctx.Err() == nil && !notSent(err) && (unanswered(err) || cutOff(err)):
		return carrel.Sandbox{}, c.lost(err)
	case err != nil:
		return carrel.Sandbox{}, err
	}
	if _, err := carrel.ParseID(string(sb.ID)); err != nil {
		return carrel.Sandbox{}, m.lies(opCreate, "", errors.New("its new sandbox has no ID"))
	}
	if err := m.verify(opCreate, sb.ID, c.project, sb); err != nil {
		return carrel.Sandbox{}, err
	}
	if err := c.e.dir.claim(sb.ID, m.name, sb.Project, true); err != nil {
		return carrel.Sandbox{}, m.lies(opCreate, sb.ID, err)
	}
	c.e.searches.forget(sb.ID, sb.Project)
	return sb, nil
}

var errEarlier = errors.New("it does not answer, " +
	"and has perhaps made the sandbox for an earlier request with this key")

// cutOff reports whether a call was ended because its node went away meanwhile.
func cutOff(err error) bool { return errors.Is(err, errCut) }

// ErrLost is why a creation failed whose sandbox may exist all the same.
var ErrLost = errors.New("the answer got lost, and the sandbox may exist")

// lost is the error for a creation whose answer did not come.
func (c *creation) lost(err error) error {
	e := &carrel.Error{Op: opCreate, Kind: carrel.Unavailable,
		Err: fmt.Errorf("%w: %w", ErrLost, err),
		Hint: "send creations with an idempotency key: " +
			"then the same request can be sent again and makes no second sandbox"}
	if c.opts.IdempotencyKey != "" {
		e.Hint = "send the same request again, with its key: it makes no second sandbox"
	}
	return e
}

// nothingHappened reports whether an error says that the node did not begin.
func (c *creation) nothingHappened(err error) bool {
	switch {
	case noSuchTemplate(err):
		c.lacking = true
		return true
	case noRoom(err), notSent(err), errors.Is(err, errOtherFleet),
		carrel.KindOf(err) == carrel.Unauthenticated:
		c.lacking = false
		return true
	}
	return false
}

// refusal is the error when no node took the sandbox.
func (c *creation) refusal() error {
	if c.last != nil && !c.lacking {
		return c.last
	}
	var away, full []string
	var tiers []carrel.Tier
	for _, s := range c.e.Status() {
		switch {
		case c.tried[s.Node]:
		case s.Away != nil:
			away = append(away, s.Node)
		default:
			full = append(full, s.Node)
		}
		tiers = append(tiers, s.Tiers...)
	}
	slices.Sort(tiers)
	tiers = slices.Compact(tiers)
	switch {
	case c.lacking && len(away) == 0:
		return c.last
	case c.lacking:
		return &carrel.Error{Op: opCreate, Kind: carrel.Unavailable, Field: "template",
			Err:  fmt.Errorf("no node that answers has the template, and these don't answer: %s", some(away)),
			Hint: "import or pull the template on each node: a fleet does not share templates yet"}
	case len(away)+len(full) == 0:
		return &carrel.Error{Op: opCreate, Kind: carrel.Unavailable, Err: errNoNodes}
	case c.home != nil:
		return unavailable(opCreate, "", c.home.name, errors.New("only it has the snapshot, and it takes nothing now"))
	case len(full) == 0:
		return &carrel.Error{Op: opCreate, Kind: carrel.Unavailable, Err: fmt.Errorf("no node answers: %s", some(away)),
			Hint: "start carrel serve on them, or look at the network between"}
	case c.opts.Tier != "" && !slices.Contains(tiers, c.opts.Tier):
		return &carrel.Error{Op: opCreate, Kind: carrel.Unsupported, Field: "tier",
			Err:  fmt.Errorf("the tier %s works on no node that answers: they have %v", c.opts.Tier, tiers),
			Hint: "'carrel doctor' on a node says what it lacks"}
	}
	return &carrel.Error{Op: opCreate, Kind: carrel.Exhausted, RetryAfter: retryFull,
		Err: fmt.Errorf("no node takes new sandboxes of this kind now: "+
			"%s are full, draining, tainted or without the tier", some(full)),
		Hint: "add nodes, or end sandboxes"}
}

// retryFull is when to ask a full fleet again.
const retryFull = 5 * time.Second
