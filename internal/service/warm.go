package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/cleanup"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/pool"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/trace"
)

// WarmOptions says what is kept ready. The zero value keeps nothing.
//
// A sandbox that is ready is a real one under its final ID. Its guest is up, has an
// identity that nobody knows, and has run a few commands; its link lets nothing out. It is
// in no table that a request can look into: every door says NotFound. A creation adopts
// it by writing the record, giving it the rules, and giving the guest the real identity;
// or by taking over the one that it has, where the creation asks for nothing else.
type WarmOptions struct {
	// Cap is how many may be ready at once; 0 switches the pool off.
	Cap int
	// Floors are kinds of which some are ready whatever is asked for.
	Floors []WarmFloor
	// Memory says how the host's memory is doing; nil reads /proc.
	Memory func() pool.Memory
	// Every is how often the pool looks at itself; 0 is two seconds.
	Every time.Duration
	// Fresh is after how long one that is ready is made sure of again; 0 is two minutes.
	Fresh time.Duration
}

// WarmFloor is one kind and how many of it are ready at least.
type WarmFloor struct {
	Template string
	CPUs     float64 // 0 is the default
	MemoryMB int     // 0 is the default
	Count    int
}

// warm is a sandbox that was made ahead. It is either in warmPool.ready or somebody's:
// who takes it out adopts it or discards it.
type warm struct {
	box    *box // not in the service's table: its record has state.Warm
	line   *line
	key    pool.Key
	boots  bool               // its first process was started, and not restored
	told   *guest.InitRequest // all that its guest was told of itself; nil is not known
	driver driver.Driver
	stop   context.CancelFunc // ends the watch over it
	fresh  time.Time          // when it last ran a command; guarded by warmPool.mu
	dead   bool               // it ended by itself while it was not in the pool; guarded by warmPool.mu
}

// kind is what it takes to make more of a key.
type kind struct {
	template string // its name, or its ID where it has none
	tier     carrel.Tier
	limits   carrel.Limits
	golden   bool // restored from its template's own start

	hits, misses int64
	failures     int
	next         time.Time // not before, after a failure
}

// warmPool is what is ready, and what is known of what is wanted. Its lock is held for
// no call of anything else.
type warmPool struct {
	opts  WarmOptions
	kick  chan struct{} // holds a token when there may be something to do
	quiet chan struct{} // holds a token when the last creation under way has ended
	busy  atomic.Int32  // creations under way
	ended atomic.Int64  // when the last one ended, in nanoseconds since 1970

	mu      sync.Mutex
	sizer   *pool.Sizer
	ready   map[pool.Key][]*warm // oldest first
	away    *warm                // one of them that is just made sure of
	making  map[pool.Key]int
	kinds   map[pool.Key]*kind
	targets map[pool.Key]int
	floors  map[pool.Key]int
	stuck   []*warm // could not be destroyed; tried again
	advice  pool.Advice
	hits    int64
	misses  int64
	lost    int64
	problem string
	stale   bool // templates have changed
}

func (w *warmPool) init(o WarmOptions) {
	if o.Memory == nil {
		o.Memory = func() pool.Memory { return pool.ReadMemory("/proc") }
	}
	if o.Every <= 0 {
		o.Every = 2 * time.Second
	}
	if o.Fresh <= 0 {
		o.Fresh = freshTime
	}
	w.opts = o
	w.kick, w.quiet = make(chan struct{}, 1), make(chan struct{}, 1)
	w.sizer = pool.New(pool.Config{Cap: o.Cap})
	w.ready, w.making, w.kinds = map[pool.Key][]*warm{}, map[pool.Key]int{}, map[pool.Key]*kind{}
}

// on reports whether there is a pool at all.
func (w *warmPool) on() bool { return w.opts.Cap > 0 }

// wake has the pool look at itself soon.
func (w *warmPool) wake() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// recheck has the pool drop what was made of templates that are no more.
func (w *warmPool) recheck() {
	if !w.on() {
		return
	}
	w.mu.Lock()
	w.stale = true
	w.mu.Unlock()
	w.wake()
}

// working notes that a creation is under way until the function that it returns is
// called.
func (w *warmPool) working() func() {
	w.busy.Add(1)
	return func() {
		w.ended.Store(time.Now().UnixNano())
		if w.busy.Add(-1) == 0 {
			select {
			case w.quiet <- struct{}{}:
			default:
			}
		}
	}
}

// keyOf is the kind of sandbox that a plan makes; ok is false for one that is not kept
// ready: made from a moment, or so quick to make that it would be pointless.
func (s *Service) keyOf(p *plan) (key pool.Key, ok bool) {
	if !s.warm.on() || p.from != nil || !p.driver.Info().Capabilities.RealProcesses {
		return "", false
	}
	return keyOfRecord(p.rec, filepath.Base(s.opts.GuestImage)), true
}

// keyOfRecord is the kind of a sandbox by its record: all that can't be changed any more
// once it runs. An image that was replaced has another root (keepRoot).
func keyOfRecord(r state.Record, guestImage string) pool.Key {
	sb, l := r.Sandbox, r.Sandbox.Limits
	return pool.Key(fmt.Sprintf("%s %s %s %s %g/%d/%d/%d %s", sb.Tier, sb.Template, r.Root, guestImage,
		l.CPUs, l.MemoryMB, l.DiskMB, l.Pids, r.Born))
}

// takeWarm gives a plan a sandbox that is ready, and reports whether there was one. It
// notes what was asked for either way.
func (s *Service) takeWarm(p *plan) bool {
	key, ok := s.keyOf(p)
	if !ok {
		return false
	}
	w := &s.warm
	defer w.wake() // there is one to be made
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sizer.Asked(key, now)
	k := w.kinds[key]
	if k == nil {
		k = kindOf(p)
		w.kinds[key] = k
	}
	list := w.ready[key]
	if len(list) == 0 {
		k.misses++
		w.misses++
		return false
	}
	// The newest: what it touched is most likely still in the processor's caches.
	last := len(list) - 1
	p.warm = list[last]
	list[last] = nil
	w.ready[key] = list[:last]
	k.hits++
	w.hits++
	p.rec.Sandbox.ID = p.warm.box.id
	s.takeOver(p)
	return true
}

// kindOf is what it takes to make more like what a plan makes.
func kindOf(p *plan) *kind {
	sb := p.rec.Sandbox
	k := &kind{template: sb.Alias, tier: sb.Tier, limits: sb.Limits, golden: p.golden != ""}
	if k.template == "" {
		k.template = sb.Template
	}
	return k
}

// returnWarm puts back a sandbox of which nothing was changed.
func (s *Service) returnWarm(p *plan) {
	if p.warm == nil {
		return
	}
	w := &s.warm
	w.mu.Lock()
	w.ready[p.warm.key] = append(w.ready[p.warm.key], p.warm)
	w.mu.Unlock()
	p.warm = nil
}

// takeOver has a plan take over the identity that the guest of its sandbox has already, where
// the plan's own would differ in the token alone: nobody was ever told that one either, and
// a guest that need not be woken is adopted in a third of the time.
func (s *Service) takeOver(p *plan) {
	told := p.warm.told
	if told == nil || told.AccessToken == "" || p.rec.Sandbox.AccessToken == "" {
		return
	}
	want := s.initRequest(p.rec)
	want.AccessToken, want.Generation = told.AccessToken, told.Generation
	if reflect.DeepEqual(want, *told) {
		p.told, p.rec.Sandbox.AccessToken = true, told.AccessToken
	}
}

// leaveWarm makes the plan one for a sandbox from nothing.
func (p *plan) leaveWarm() {
	if p.told { // another sandbox, another token
		p.told, p.rec.Sandbox.AccessToken = false, newToken()
	}
	p.warm = nil
	p.rec.Sandbox.ID = carrel.NewID()
}

// readyMark is a file in a sandbox's directory for as long as it is ready and nobody
// has tried to adopt it. It is what a service that finds a record of state.Warm believes:
// the record alone does not say whether its guest has somebody's identity already. It
// need not reach the disk, for a machine that stops takes the sandbox with it.
const readyMark = "ready"

// adoptWarm makes a sandbox that is ready the reserved one, or ends it: once its guest
// may have been told anything, it is nobody else's any more.
func (s *Service) adoptWarm(ctx context.Context, b *box, p *plan) (err error) {
	var undo cleanup.Stack
	defer undo.Run()
	undo.Add(func() { s.unreserve(b) })
	w := p.warm
	w.stop() // what it noticed before counts
	undo.Add(func() { _ = os.RemoveAll(b.dir) })
	undo.Add(func() { s.unrecord(b) })
	inst := w.line.inst
	undo.Add(func() { s.destroy(b, inst) })
	undo.Add(w.line.hangUp)
	undo.Add(s.warm.spoiled)
	if s.warm.isDead(w) {
		return errors.New("it ended by itself while it was ready")
	}
	if err := os.Remove(filepath.Join(b.dir, readyMark)); err != nil {
		return err
	}
	b.mu.Lock()
	b.rec.Guest, b.rec.Sandbox.Generation = w.box.rec.Guest, w.box.rec.Sandbox.Generation
	b.mu.Unlock()
	b.adopt(inst, w.box.conn.As(p.rec.Sandbox.AccessToken), p.ttl)
	rec := b.record()
	rec.Sandbox.State = carrel.Running
	written := s.writeDown(ctx, rec, p, &undo)
	ruled := make(chan error, 1)
	go func() {
		defer trace.Mark(ctx, "network").End()
		ruled <- s.applyNetwork(opCreate, b)
	}()
	if !p.told {
		err = s.init(ctx, b, false)
	}
	if err = first(err, <-ruled, <-written, <-written); err == nil {
		err = b.run(ctx)
	}
	if err != nil {
		return err
	}
	s.expiry.set(b, rec.Sandbox.Ends)
	undo.Release()
	s.follow(b, inst, nil)
	return nil
}

// isDead reports whether one that was taken out was seen to end.
func (w *warmPool) isDead(one *warm) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return one.dead
}

// spoiled counts one that was given up.
func (w *warmPool) spoiled() {
	w.mu.Lock()
	w.lost++
	w.mu.Unlock()
}

// placeholder gives a guest that is ready an identity that nobody knows, and lets it do
// once what the first command will need: the shell, its libraries, and the way there.
func (s *Service) placeholder(ctx context.Context, b *box, l *line) error {
	if err := s.greet(ctx, b, l); err != nil {
		return err
	}
	return s.touch(ctx, b.guest(), touches)
}

// touchTime bounds the first commands. There are several, for each finds less left to be read, mapped and
// started, in the guest and in the sandbox's kernel: the fourth takes half of the first one's time.
const (
	touchTime = 10 * time.Second
	touches   = 4
)

// touch runs a command that does nothing, a few times, and asks for it in both of the languages that clients
// speak: what the guest does for the first time in either takes it 2 ms. A template without that shell
// is not the poorer for it.
func (s *Service) touch(ctx context.Context, conn *guest.Conn, times int) error {
	tctx, cancel := context.WithTimeout(ctx, touchTime)
	defer cancel()
	conns := [...]*guest.Conn{conn.AsJSON(), conn}
	for _, args := range [][]string{{"/bin/bash", "-l", "-c", "/bin/true"}, {"/bin/sh", "-c", "/bin/true"}} {
		works := false
		for i := range times {
			res, err := conns[i%len(conns)].Run(tctx, carrel.Command{Args: args})
			if works = err == nil && res.ExitCode == 0; !works {
				break
			}
		}
		if works {
			break
		}
	}
	return ctx.Err()
}
