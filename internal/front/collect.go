package front

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/fleet"
	"github.com/carrel-dev/carrel/internal/ledger/webhook"
	"github.com/carrel-dev/carrel/internal/state"
)

const (
	// maxQueue bounds the events of one node that wait in memory.
	maxQueue = 4096
	// maxBatch bounds the events of one write.
	maxBatch = 256
	// newNodeSlack is how much later than the database's clock that of a node may be which is new. Older
	// events are from before it joined.
	newNodeSlack = time.Hour
	// orderTime bounds how long an event waits for those of the node where its sandbox was before.
	orderTime = 15 * time.Second
	// maxPlaces bounds the sandboxes whose last node is remembered.
	maxPlaces = 100_000
	// readAgain is the pause after a broken stream of events.
	readAgain = 500 * time.Millisecond
)

// collector brings the events of all nodes into the fleet's records, in one order. The events of a
// sandbox that moved come after those of the node where it was before, if that node is alive. One
// front at a time collects.
type collector struct {
	nodes    *nodes
	registry fleet.Registry
	store    state.Store
	duty     *fleet.Duty
	log      *slog.Logger
	grown    func() // is called when there are new events

	changed chan struct{} // something may go on

	mu      sync.Mutex
	sources map[string]*source // by the node's name
	places  map[carrel.ID]string
	waits   map[waiting]*barrier
}

// source is the events of one machine.
type source struct {
	node   string
	public []byte
	cancel context.CancelFunc
	room   chan struct{}
	seq    int64 // the newest that was read
	queue  []carrel.Event
}

// waiting is an event of a sandbox that was on another node before.
type waiting struct {
	node string
	seq  int64
}

// barrier is up to where the other node's events must be known first.
type barrier struct {
	seq   int64
	known bool
	since time.Time
}

func newCollector(f *Front, duty *fleet.Duty, grown func()) *collector {
	return &collector{nodes: f.nodes, registry: f.registry, store: f.store, duty: duty, log: f.log, grown: grown,
		changed: make(chan struct{}, 1), sources: map[string]*source{}, places: map[carrel.ID]string{}, waits: map[waiting]*barrier{}}
}

// soon has run look again.
func (c *collector) soon() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// run collects until ctx ends, or another front has the duty. Then it calls fenced.
func (c *collector) run(ctx context.Context, fenced func()) {
	var readers sync.WaitGroup
	defer readers.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tick := time.NewTicker(lookEvery / 4)
	defer tick.Stop()
	for ctx.Err() == nil {
		c.meet(ctx, &readers)
		for c.step(ctx, &readers, fenced) {
		}
		select {
		case <-tick.C:
		case <-c.changed:
		case <-ctx.Done():
		}
	}
}

// meet begins to read from nodes that are new, and ends with those that are gone.
func (c *collector) meet(ctx context.Context, readers *sync.WaitGroup) {
	c.nodes.mu.Lock()
	now := maps.Clone(c.nodes.byName)
	c.nodes.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, s := range c.sources {
		if n, ok := now[name]; !ok || string(n.Public) != string(s.public) {
			s.cancel()
			delete(c.sources, name)
		}
	}
	for name, n := range now {
		if c.sources[name] != nil {
			continue
		}
		rctx, cancel := context.WithCancel(ctx)
		s := &source{node: name, public: n.Public, cancel: cancel, room: make(chan struct{}, maxQueue)}
		c.sources[name] = s
		readers.Go(func() { c.read(rctx, s) })
	}
}

// read reads a node's events until ctx ends.
func (c *collector) read(ctx context.Context, s *source) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		err := c.readOnce(ctx, s)
		if err != nil && ctx.Err() == nil && carrel.KindOf(err) != carrel.Unavailable {
			c.log.Warn("read a node's events", "node", s.node, "err", err)
		}
		pause.Reset(readAgain)
	}
}

func (c *collector) readOnce(ctx context.Context, s *source) error {
	known, err := c.registry.Source(ctx, s.public)
	if err != nil {
		return err
	}
	cl, err := c.nodes.client(s.node, "")
	if err != nil {
		return err
	}
	c.mu.Lock()
	after := max(known.Seq, s.seq)
	c.mu.Unlock()
	oldest := time.Time{}
	if known.Seq == 0 {
		oldest = known.Since.Add(-newNodeSlack)
	}
	for e, err := range cl.Events(ctx, max(1, after)) { // the first one says that the node began
		if err != nil {
			return err
		}
		if e.Seq <= after {
			return &carrel.Error{Op: "read events", Kind: carrel.Internal, Err: errors.New("a node's events are not in order")}
		}
		after = e.Seq
		listed := webhook.Listed(&e) && !e.Time.Before(oldest)
		if listed {
			select {
			case s.room <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		c.mu.Lock()
		if s.seq = e.Seq; listed {
			e.Fields = maps.Clone(e.Fields)
			if e.Fields == nil {
				e.Fields = map[string]string{}
			}
			e.Fields["node"] = s.node
			s.queue = append(s.queue, e)
		}
		c.mu.Unlock()
		c.soon()
	}
	return ctx.Err()
}

// step writes some events that nothing holds up. It reports whether there may be more.
func (c *collector) step(ctx context.Context, readers *sync.WaitGroup, fenced func()) bool {
	more := false
	for _, name := range c.names() {
		s, batch := c.ready(ctx, name, readers)
		if len(batch) == 0 {
			continue
		}
		err := c.registry.Collect(ctx, *c.duty, s.public, batch)
		if errors.Is(err, fleet.ErrFenced) {
			fenced()
		}
		if err != nil {
			if ctx.Err() == nil {
				c.log.Warn("keep the events of a node", "node", name, "err", err)
			}
			continue
		}
		more = true
		c.kept(s, batch)
		c.grown()
	}
	return more && ctx.Err() == nil
}

func (c *collector) names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.sources))
}

// kept takes events out of a node's queue that are in the records.
func (c *collector) kept(s *source, batch []carrel.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.queue = slices.Delete(s.queue, 0, len(batch))
	if len(c.places) > maxPlaces {
		clear(c.places) // the records know them, too
	}
	for _, e := range batch {
		<-s.room
		delete(c.waits, waiting{s.node, e.Seq})
		c.places[e.ID] = s.node
	}
}

// ready returns events from the front of a node's queue that nothing holds up.
func (c *collector) ready(ctx context.Context, name string, readers *sync.WaitGroup) (*source, []carrel.Event) {
	c.mu.Lock()
	s := c.sources[name]
	var head []carrel.Event
	if s != nil {
		head = slices.Clone(s.queue[:min(maxBatch, len(s.queue))])
	}
	c.mu.Unlock()
	here := map[carrel.ID]bool{}
	for i, e := range head {
		if !here[e.ID] && c.held(ctx, s, &e, readers) {
			return s, head[:i]
		}
		here[e.ID] = true
	}
	return s, head
}

// held reports whether an event must wait for those of another node.
func (c *collector) held(ctx context.Context, s *source, e *carrel.Event, readers *sync.WaitGroup) bool {
	if e.Type == "sandbox.created" || e.ID == "" {
		return false
	}
	c.mu.Lock()
	last, known := c.places[e.ID]
	c.mu.Unlock()
	if !known {
		page, err := c.store.EventsBefore(ctx, e.ID, 0, 1)
		if err != nil {
			return true
		}
		if len(page) > 0 {
			last = page[0].Fields["node"]
		}
	}
	n, there := c.nodes.node(last)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.places[e.ID] = last
	other := c.sources[last]
	if last == s.node || last == "" || other == nil || !there || !n.Alive() {
		return false
	}
	at := waiting{s.node, e.Seq}
	b := c.waits[at]
	if b == nil {
		b = &barrier{since: time.Now()}
		c.waits[at] = b
		readers.Go(func() { c.ask(ctx, last, b) })
	}
	if time.Since(b.since) > orderTime {
		c.log.Warn("an event does not wait longer for those of another node", "sandbox", e.ID, "node", s.node, "other", last)
		return false
	}
	return !b.known || other.seq < b.seq ||
		slices.ContainsFunc(other.queue, func(o carrel.Event) bool { return o.ID == e.ID })
}

// ask asks a node for the number of its newest event, until it answers or the event waits no longer.
func (c *collector) ask(ctx context.Context, node string, b *barrier) {
	ctx, cancel := context.WithTimeout(ctx, orderTime)
	defer cancel()
	tick := time.NewTicker(readAgain)
	defer tick.Stop()
	for {
		cl, err := c.nodes.client(node, "")
		if err == nil {
			var l carrel.Load
			if l, err = cl.Load(ctx); err == nil {
				c.mu.Lock()
				b.seq, b.known = l.Event, true
				c.mu.Unlock()
				c.soon()
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
