package warm

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/pool"
)

// Options says what is kept ready. The zero value keeps nothing.
type Options struct {
	// Cap is how many may be ready at once; 0 switches the pool off.
	Cap int
	// Floors are kinds of which some are ready whatever is asked for.
	Floors []Floor
	// Memory says how the host's memory is doing; nil reads /proc.
	Memory func() pool.Memory
	// Every is how often the pool looks at itself; 0 is two seconds.
	Every time.Duration
	// Fresh is after how long one that is ready is made sure of again; 0 is two minutes.
	Fresh time.Duration
}

// Floor is one kind and how many of it are ready at least.
type Floor struct {
	Template string
	CPUs     float64 // 0 is the default
	MemoryMB int     // 0 is the default
	Count    int
}

// Kind is what it takes to make more of a key.
type Kind struct {
	Template string // its name, or its ID where it has none
	Project  string // whose template it is; "" for a built-in one, and for what the configuration names
	Tier     carrel.Tier
	Limits   carrel.Limits
	Golden   bool // restored from its template's own start
}

// Host makes and ends the sandboxes of a pool; S is one of them. Its methods are called at
// any time and at once, without a lock.
type Host[S any] interface {
	// Spawn runs fn in a goroutine with the host's lifetime, and reports whether it did:
	// a host that is closing starts nothing.
	Spawn(fn func(life context.Context)) bool
	// Room is how many more sandboxes there may be, of those that live and those that are
	// ready together; bounded is false where any number may.
	Room() (n int, bounded bool)
	// Key is the key that a kind has at this moment, and that kind with all its defaults.
	// Errors: ErrUnripe; NotFound where there is no such template.
	Key(ctx context.Context, k Kind) (pool.Key, Kind, error)
	// Make makes one, or leaves nothing. Errors: ErrUnripe, ErrStale; admission.ErrBusy
	// where the machine has no time for what nobody waits for.
	Make(ctx context.Context, key pool.Key, k Kind) (*One[S], error)
	// Refresh makes sure that one is well and runs a command in it.
	Refresh(ctx context.Context, sandbox S) error
	// Wait returns when one has ended by itself, or with ctx.
	Wait(ctx context.Context, sandbox S) error
	// End ends one. After an error it is still there, and is tried again.
	End(ctx context.Context, sandbox S) error
}

// One is a sandbox that was made ahead. It is either on the shelf or somebody's: who takes
// it out adopts it or discards it.
type One[S any] struct {
	Sandbox S
	ID      carrel.ID
	Key     pool.Key
	// LimitMB is its memory limit, CommittedMB what of that the machine must reckon with.
	LimitMB, CommittedMB int

	stop  context.CancelFunc // ends the watch over it; nil where there is none
	fresh time.Time          // when it last ran a command; guarded by shelf.mu
	dead  bool               // it ended by itself while it was not on the shelf; guarded by shelf.mu
}

// Unwatch ends the watch over one that was taken out. What was noticed before counts: see
// Pool.IsDead.
func (o *One[S]) Unwatch() {
	if o.stop != nil {
		o.stop()
	}
}

// freshTime is how long one that is ready is left alone. What it has in memory goes cold by and by: its
// host takes pages back, its connection is closed after a minute. After ten minutes the first
// command takes a quarter more of the processor's time than that of one which was just made.
const freshTime = 2 * time.Minute

// endTime bounds the end of one.
const endTime = 30 * time.Second

// Pool is what is ready, and what is known of what is wanted. It is safe for concurrent use.
type Pool[S any] struct {
	opts  Options
	host  Host[S]
	log   *slog.Logger
	shelf shelf[S]
	kick  chan struct{} // holds a token when there may be something to do
	quiet chan struct{} // holds a token when the last creation under way has ended
	busy  atomic.Int32  // creations under way
	ended atomic.Int64  // when the last one ended, in nanoseconds since 1970
}

// New returns a pool that holds nothing. Keep fills it.
func New[S any](o Options, host Host[S], log *slog.Logger) *Pool[S] {
	if o.Memory == nil {
		o.Memory = func() pool.Memory { return pool.ReadMemory("/proc") }
	}
	if o.Every <= 0 {
		o.Every = 2 * time.Second
	}
	if o.Fresh <= 0 {
		o.Fresh = freshTime
	}
	p := &Pool[S]{opts: o, host: host, log: log, kick: make(chan struct{}, 1), quiet: make(chan struct{}, 1)}
	p.shelf.init(o.Cap)
	return p
}

// IsOn reports whether anything is kept ready at all.
func (p *Pool[S]) IsOn() bool { return p.opts.Cap > 0 }

// wake has the pool look at itself soon.
func (p *Pool[S]) wake() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// Recheck has the pool drop what was made of templates that are no more.
func (p *Pool[S]) Recheck() {
	if !p.IsOn() {
		return
	}
	p.shelf.markStale()
	p.wake()
}

// Working notes that a creation is under way until the function that it returns is
// called.
func (p *Pool[S]) Working() (done func()) {
	p.busy.Add(1)
	return func() {
		p.ended.Store(time.Now().UnixNano())
		if p.busy.Add(-1) == 0 {
			select {
			case p.quiet <- struct{}{}:
			default:
			}
		}
	}
}

// Take takes out one of a key; nil where none is ready. It notes what was asked for either
// way. k is what it takes to make more of it.
func (p *Pool[S]) Take(key pool.Key, k Kind) *One[S] {
	defer p.wake() // there is one to be made
	return p.shelf.take(key, k, time.Now())
}

// Return puts back one of which nothing was changed.
func (p *Pool[S]) Return(one *One[S]) { p.shelf.add(one) }

// IsDead reports whether one that was taken out was seen to end.
func (p *Pool[S]) IsDead(one *One[S]) bool { return p.shelf.isDead(one) }

// Spoiled counts one that was given up by who had taken it out.
func (p *Pool[S]) Spoiled() { p.shelf.countLost() }

// CommittedMB is what the memory limits of those that are ready come to, in MiB.
func (p *Pool[S]) CommittedMB() int { return p.shelf.committedMB() }

// GiveWay gives up as many of those that are ready as so much memory takes, at least one,
// and reports whether there were any.
func (p *Pool[S]) GiveWay(memoryMB int) bool {
	out := p.shelf.giveUp(max(memoryMB, 1))
	p.discardAll(out)
	return len(out) > 0
}

// Status is how the pool is doing, without what others know of.
func (p *Pool[S]) Status() carrel.PoolStatus {
	st := p.shelf.status()
	st.Cap = p.opts.Cap
	sortKinds(st.Kinds)
	return st
}
