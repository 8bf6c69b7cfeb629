package admission

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
)

// Lane is a class of requests; a lower one goes first.
type Lane int

// The lanes.
const (
	Wake   Lane = iota // a paused sandbox is needed; requests to it are held
	Create             // a new sandbox
	lanes
)

// String returns the lane's name.
func (l Lane) String() string {
	if l == Wake {
		return "wake"
	}
	return "create"
}

// Options bounds a gate. The zero value means the defaults.
type Options struct {
	// MaxStarting bounds how many may be inside at once, whatever the gate learns about the
	// machine; 0 is 32 for each processor.
	MaxStarting int
	// Fixed always lets MaxStarting in, and does not measure the machine.
	Fixed bool
	// MaxQueued bounds how many may wait; 0 is 1000.
	MaxQueued int
	// MaxWait bounds the time in the queue; 0 is 20 seconds.
	MaxWait time.Duration
	// Stuck is the least time inside after which a pass counts as waiting for something other than
	// the machine. Then another is let in beside it; 0 is 2 seconds.
	Stuck time.Duration
	// Flag names the settings in an error's hint; "" is "--max-queued", with the name of the queue.
	Flag string
	// Check returns an error unless the machine has room for one more beside those that are
	// starting. With nil there is always room. It is called when a request comes, and again after a
	// wait.
	Check func(r Request, starting int) error
	// Processors is the machine's number of processors; 0 asks the runtime.
	Processors int
}

func (o Options) withDefaults() Options {
	if o.Processors <= 0 {
		o.Processors = runtime.GOMAXPROCS(0)
	}
	if o.MaxStarting <= 0 {
		o.MaxStarting = 32 * o.Processors
	}
	if o.MaxQueued <= 0 {
		o.MaxQueued = 1000
	}
	if o.MaxWait <= 0 {
		o.MaxWait = 20 * time.Second
	}
	if o.Stuck <= 0 {
		o.Stuck = 2 * time.Second
	}
	if o.Flag == "" {
		o.Flag = "--max-queued"
	}
	return o
}

// Request describes work that wants to begin.
type Request struct {
	Op    string // for errors: "create sandbox"
	Lane  Lane
	Share string // the sharer of turns: an opaque key; "" is a sharer too
	// Class names work that takes about the same time: a tier, and whether it boots or restores.
	// Latencies are compared only within a class.
	Class string
	// MemoryMB is the memory that the work may use in the end; 0 is not known.
	MemoryMB int
}

// Gate lets work begin. It is safe for concurrent use.
type Gate struct {
	opts Options

	mu      sync.Mutex
	closed  error
	limit   limiter
	inside  int // passes given out and not done
	stuck   int // of those, the ones that wait for something else
	queued  [lanes]int
	sharers map[string]*sharer
	turn    uint64 // counts grants
	wakes   int    // wakes in a row while creations waited
	counts  counts
}

// counts are totals since the gate was made.
type counts struct {
	Admitted, Left uint64
	refused        [reasons]uint64
	waited         [lanes]Waits
}

// refusals is how many were refused, for all reasons.
func (c *counts) refusals() (n uint64) {
	for _, of := range c.refused {
		n += of
	}
	return n
}

// New returns a gate.
func New(o Options) *Gate {
	o = o.withDefaults()
	return &Gate{opts: o, limit: newLimiter(o), sharers: map[string]*sharer{}}
}

// waiter is a request in the queue.
type waiter struct {
	req    Request
	sharer *sharer
	since  time.Time
	place  place
	ready  chan error // holds the verdict: nil lets it in
}

// Pass is the right to work, until Done.
type Pass struct {
	gate   *Gate
	req    Request
	sharer *sharer
	asked  time.Time   // came to the gate
	began  time.Time   // was let in
	others int         // how many were inside then, with it
	timer  *time.Timer // fires when it looks stuck

	stuck, done bool // guarded by gate.mu
}

type passKey struct{}

// Inside returns a context that is let in at once by Enter. Its work belongs to the pass p, which a
// caller above has.
func Inside(ctx context.Context, p *Pass) context.Context {
	if p.gate == nil { // this pass came from such a context itself
		return ctx
	}
	return context.WithValue(ctx, passKey{}, p)
}

// Enter waits for a place and takes it. The caller must call Done on the pass, also when its work
// failed. A context from [Inside] has a place already.
func (g *Gate) Enter(ctx context.Context, r Request) (*Pass, error) {
	if p, ok := ctx.Value(passKey{}).(*Pass); ok && p.gate == g {
		return &Pass{}, nil
	}
	if err := g.check(r); err != nil {
		return nil, err
	}
	now := time.Now()
	g.mu.Lock()
	if g.closed != nil {
		defer g.mu.Unlock()
		return nil, g.closed
	}
	t := g.sharer(r.Share)
	t.seen = now
	if g.roomLocked() && g.waiting() == 0 {
		g.countLocked(t)
		g.counts.waited[r.Lane].add(0)
		p := g.passLocked(r, t, now, now)
		g.mu.Unlock()
		return p, nil
	}
	err := g.tooLateLocked(ctx, r, t, now)
	var bumped *waiter
	why := tooLate
	if err == nil && g.waiting() >= g.opts.MaxQueued {
		if bumped = g.bumpLocked(t); bumped == nil {
			err, why = g.fullLocked(r, t), queueFull
		}
	}
	if err != nil {
		g.counts.refused[why]++
		g.forgetLocked(t, now)
		g.mu.Unlock()
		return nil, err
	}
	w := &waiter{req: r, sharer: t, since: now, ready: make(chan error, 1)}
	t.push(w)
	g.queued[r.Lane]++
	g.dispatchLocked(now)
	g.mu.Unlock()
	if bumped != nil {
		bumped.ready <- g.bumpedError(bumped.req)
	}
	return g.wait(ctx, w)
}

// wait waits for a waiter's turn, until its context ends or its bound has passed.
func (g *Gate) wait(ctx context.Context, w *waiter) (*Pass, error) {
	timer := time.NewTimer(g.opts.MaxWait)
	defer timer.Stop()
	var err error
	select {
	case err = <-w.ready:
	case <-ctx.Done():
		err = g.leave(w, ctx, nil)
	case <-timer.C:
		err = g.leave(w, ctx, g.waitedLocked)
	}
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	now := time.Now()
	g.counts.waited[w.req.Lane].add(now.Sub(w.since))
	p := g.passLocked(w.req, w.sharer, w.since, now)
	g.mu.Unlock()
	if err := context.Cause(ctx); err != nil { // let in as it hung up
		p.Done(err)
		return nil, g.goneError(w.req, err)
	}
	if err := g.check(w.req); err != nil {
		p.Done(err)
		return nil, err
	}
	return p, nil
}

// leave removes a waiter from the queue, unless it was let in or refused just now. late makes the
// error for a waiter that waited too long. It is nil for one that hung up.
func (g *Gate) leave(w *waiter, ctx context.Context, late func(Request, time.Duration) error) error {
	g.mu.Lock()
	if !w.place.in {
		g.mu.Unlock()
		return <-w.ready // the verdict is there or will come soon
	}
	defer g.mu.Unlock()
	w.sharer.remove(w)
	g.queued[w.req.Lane]--
	if late != nil {
		g.counts.refused[waitedLong]++
		return late(w.req, time.Since(w.since))
	}
	g.counts.Left++
	w.sharer.impatient(time.Since(w.since), g.opts.MaxWait)
	return g.goneError(w.req, context.Cause(ctx))
}

// check asks whether the machine has room, and counts a refusal.
func (g *Gate) check(r Request) error {
	err := g.machine(r)
	if err != nil {
		g.mu.Lock()
		g.counts.refused[noRoom]++
		g.mu.Unlock()
	}
	return err
}

// machine asks whether the machine has room for one more.
func (g *Gate) machine(r Request) error {
	if g.opts.Check == nil {
		return nil
	}
	g.mu.Lock()
	starting := g.inside
	g.mu.Unlock()
	return g.opts.Check(r, starting)
}

// roomLocked reports whether one more may be inside.
func (g *Gate) roomLocked() bool {
	return g.inside < g.opts.MaxStarting && g.inside-g.stuck < g.limit.now()
}

func (g *Gate) waiting() int { return g.queued[Wake] + g.queued[Create] }

// passLocked makes a pass for a request that was counted. It marks the pass as stuck when it takes
// much longer than usual.
func (g *Gate) passLocked(r Request, t *sharer, asked, now time.Time) *Pass {
	p := &Pass{gate: g, req: r, sharer: t, asked: asked, began: now, others: g.inside}
	p.timer = time.AfterFunc(max(g.opts.Stuck, 8*g.limit.usual(r.Class)), p.markStuck)
	return p
}

// countLocked counts one more inside.
func (g *Gate) countLocked(t *sharer) {
	g.turn++
	g.inside++
	t.inside++
	t.turn = g.turn
	g.counts.Admitted++
}

// wakesInRow is how many wakes go before a waiting creation. So creations still get their turn
// while wakes keep coming.
const wakesInRow = 8

// dispatchLocked lets in as many waiters as there is room for.
func (g *Gate) dispatchLocked(now time.Time) {
	for g.roomLocked() && g.waiting() > 0 {
		lane := Wake
		switch {
		case g.queued[Wake] == 0:
			lane, g.wakes = Create, 0
		case g.queued[Create] == 0:
			g.wakes = 0
		case g.wakes >= wakesInRow:
			lane, g.wakes = Create, 0
		default:
			g.wakes++
		}
		w := g.nextLocked(lane)
		w.sharer.remove(w)
		g.queued[lane]--
		if waited := now.Sub(w.since); w.sharer.doomed(waited) {
			g.counts.refused[waitedLong]++
			w.ready <- g.waitedLocked(w.req, waited)
			continue
		}
		g.countLocked(w.sharer)
		w.sharer.patient(g.opts.MaxWait)
		w.ready <- nil
	}
}

// markStuck makes room beside a pass that waits for something other than the machine.
func (p *Pass) markStuck() {
	g := p.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.done {
		return
	}
	p.stuck = true
	g.stuck++
	g.dispatchLocked(time.Now())
}

// Done gives the place back. err is the result of the work. The gate learns nothing from a failure
// that was the work's own fault. Done may be called again, which does nothing.
func (p *Pass) Done(err error) {
	if p == nil || p.gate == nil {
		return
	}
	p.timer.Stop()
	now := time.Now()
	g := p.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.done {
		return
	}
	p.done = true
	g.inside--
	p.sharer.inside--
	if p.stuck {
		g.stuck--
	}
	g.limit.learn(sample{class: p.req.Class, took: now.Sub(p.began), others: p.others, verdict: judge(err), now: now})
	if errors.Is(err, context.Canceled) {
		p.sharer.impatient(now.Sub(p.asked), g.opts.MaxWait)
	}
	g.dispatchLocked(now)
	g.forgetLocked(p.sharer, now)
}

// judge says what a result shows about the machine.
func judge(err error) verdict {
	switch carrel.KindOf(err) {
	case "":
		return fine
	case carrel.TimedOut, carrel.Unavailable:
		if errors.Is(err, context.Canceled) {
			return nothing
		}
		return overloaded
	}
	return nothing
}

// Close refuses all waiting and all later requests with err.
func (g *Gate) Close(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		return
	}
	g.closed = err
	for _, t := range g.sharers {
		for lane := range lanes {
			for w := t.newest(lane); w != nil; w = t.newest(lane) {
				t.remove(w)
				g.queued[lane]--
				w.ready <- err
			}
		}
	}
}
