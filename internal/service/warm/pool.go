package warm

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/pool"
)

// Options says which sandboxes are kept ready. The zero value keeps none.
type Options struct {
	// Cap is how many sandboxes may be ready at once; 0 switches the pool off.
	Cap int
	// Floors are kinds that are kept ready even without demand.
	Floors []Floor
	// Memory returns the state of the host's memory; nil reads /proc.
	Memory func() pool.Memory
	// Every is the time between two rounds of the pool; 0 is two seconds.
	Every time.Duration
	// Fresh is the time after which a ready sandbox is checked again; 0 is two minutes.
	Fresh time.Duration
}

// Floor is a kind of sandbox and how many of it are kept ready at least.
type Floor struct {
	Template string
	CPUs     float64 // 0 is the default
	MemoryMB int     // 0 is the default
	Count    int
}

// Kind describes how to make more sandboxes of a key.
type Kind struct {
	Template string // its name, or its ID where it has none
	Project  string // its project; "" for a built-in one or the configuration's
	Tier     carrel.Tier
	Limits   carrel.Limits
	Golden   bool // restored from its template's own start
}

// Host makes and ends the sandboxes of a pool. S is one of them. The pool calls its methods
// concurrently, and without a lock.
type Host[S any] interface {
	// Spawn runs fn in a goroutine with the host's lifetime. It reports false, and runs nothing,
	// when the host is closing.
	Spawn(fn func(life context.Context)) bool
	// Room is how many more sandboxes there may be, living and ready ones together. bounded is
	// false when there is no limit.
	Room() (n int, bounded bool)
	// Key returns the present key of a kind, and the kind with all its defaults. Errors: ErrUnripe;
	// NotFound when there is no such template.
	Key(ctx context.Context, k Kind) (pool.Key, Kind, error)
	// Make makes a sandbox, or leaves nothing. Errors: ErrUnripe, ErrStale; admission.ErrBusy when
	// the machine has no time for work that no caller waits for.
	Make(ctx context.Context, key pool.Key, k Kind) (*One[S], error)
	// Refresh checks that a sandbox is well, and runs a command in it.
	Refresh(ctx context.Context, sandbox S) error
	// Wait returns when a sandbox has ended by itself, or when ctx ends.
	Wait(ctx context.Context, sandbox S) error
	// End ends a sandbox. After an error the sandbox is still there, and the pool tries again.
	End(ctx context.Context, sandbox S) error
}

// One is a sandbox that was made ahead. It is on the shelf, or it belongs to the caller who took it
// out. That caller must adopt it or discard it.
type One[S any] struct {
	Sandbox S
	ID      carrel.ID
	Key     pool.Key
	// LimitMB is its memory limit. CommittedMB is the part of it that counts against the machine's
	// memory.
	LimitMB, CommittedMB int

	stop  context.CancelFunc // ends the watch over it; nil without a watch
	fresh time.Time          // when it last ran a command; guarded by shelf.mu
	dead  bool               // ended by itself while off the shelf; guarded by shelf.mu
}

// Unwatch ends the watch over a sandbox that was taken out. An end that was noticed before still
// counts: see Pool.IsDead.
func (o *One[S]) Unwatch() {
	if o.stop != nil {
		o.stop()
	}
}

// freshTime is how long a ready sandbox is left alone. Its memory goes cold with time: its host
// takes pages back, and its connection is closed after a minute. After ten minutes, its first
// command takes a quarter more processor time than in a new sandbox.
const freshTime = 2 * time.Minute

// endTime bounds the end of one sandbox.
const endTime = 30 * time.Second

// Pool holds the ready sandboxes and knows the demand for them. It is safe for concurrent use.
type Pool[S any] struct {
	opts  Options
	host  Host[S]
	log   *slog.Logger
	shelf shelf[S]
	kick  chan struct{} // holds a token when there may be work
	quiet chan struct{} // holds a token when the last creation under way has ended
	busy  atomic.Int32  // creations under way
	ended atomic.Int64  // when the last one ended, in nanoseconds since 1970
}

// New returns an empty pool. Keep fills it.
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

// IsOn reports whether the pool is switched on.
func (p *Pool[S]) IsOn() bool { return p.opts.Cap > 0 }

// wake makes the pool start a round soon.
func (p *Pool[S]) wake() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// Recheck makes the pool drop the sandboxes of templates that no longer exist.
func (p *Pool[S]) Recheck() {
	if !p.IsOn() {
		return
	}
	p.shelf.markStale()
	p.wake()
}

// Working notes that a creation is under way until done is called.
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

// Take takes out a sandbox of a key. It returns nil when none is ready. It counts the request in
// both cases. k describes how to make more of the key.
func (p *Pool[S]) Take(key pool.Key, k Kind) *One[S] {
	defer p.wake() // there is one to be made
	return p.shelf.take(key, k, time.Now())
}

// Return puts back an unchanged sandbox.
func (p *Pool[S]) Return(one *One[S]) { p.shelf.add(one) }

// IsDead reports whether a sandbox that was taken out has ended.
func (p *Pool[S]) IsDead(one *One[S]) bool { return p.shelf.isDead(one) }

// Spoiled counts a sandbox that was taken out and then given up.
func (p *Pool[S]) Spoiled() { p.shelf.countLost() }

// CommittedMB is the sum of the ready sandboxes' memory limits, in MiB.
func (p *Pool[S]) CommittedMB() int { return p.shelf.committedMB() }

// GiveWay gives up as many ready sandboxes as needed to free this much memory, at least one. It
// reports whether there were any.
func (p *Pool[S]) GiveWay(memoryMB int) bool {
	out := p.shelf.giveUp(max(memoryMB, 1))
	p.discardAll(out)
	return len(out) > 0
}

// Status returns the state of the pool, without the data that only others know.
func (p *Pool[S]) Status() carrel.PoolStatus {
	st := p.shelf.status()
	st.Cap = p.opts.Cap
	sortKinds(st.Kinds)
	return st
}
