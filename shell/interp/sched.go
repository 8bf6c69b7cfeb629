package interp

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// sched makes a machine deterministic: its processes run one at a time, in an order
// that depends on nothing but what they do, and its clock stands still while any of
// them can run. When all wait, the clock jumps to the end of the first sleep.
type sched struct {
	mu      sync.Mutex
	now     time.Time
	current *turn
	waiting []*ticket
	ended   bool // the machine is closed: everybody runs
	rng     *rand.ChaCha8
}

// turn is who may run: a goroutine, whichever of its processes it works for.
type turn struct{ _ byte }

// ticket is a goroutine that waits for its turn.
type ticket struct {
	turn  *turn
	ready func() bool // nil is at once
	until time.Time   // zero is for ever
	given chan struct{}
}

// epoch is when a deterministic machine is switched on.
var epoch = time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)

func newSched(seed uint64) *sched {
	var key [32]byte
	for i := range 4 {
		binary.LittleEndian.PutUint64(key[8*i:], seed+uint64(i)*0x9e3779b97f4a7c15)
	}
	return &sched{now: epoch, rng: rand.NewChaCha8(key)}
}

// clock is the virtual time. Every look at it takes a microsecond, so that what waits
// for the time to pass without sleeping does not wait for ever.
func (s *sched) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(time.Microsecond)
	return s.now
}

// random fills b.
func (s *sched) random(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.rng.Read(b) // never fails
}

// enter queues a new process, which runs once the returned channel is closed. It is
// called by who makes the process, so that the queue's order is the program's.
func (s *sched) enter(p *proc) <-chan struct{} {
	p.turn = new(turn)
	t := &ticket{turn: p.turn, given: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		close(t.given)
		return t.given
	}
	s.waiting = append(s.waiting, t)
	s.next()
	return t.given
}

// block gives the turn away until ready says yes or d has passed (0: never).
func (s *sched) block(p *proc, ready func() bool, d time.Duration) {
	t := &ticket{turn: p.turn, ready: ready, given: make(chan struct{})}
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		time.Sleep(time.Millisecond) // what it waits for ends by itself now
		return
	}
	if d > 0 {
		t.until = s.now.Add(d)
	}
	if s.current == t.turn {
		s.current = nil
	}
	s.waiting = append(s.waiting, t)
	s.next()
	s.mu.Unlock()
	<-t.given
}

// leave gives the turn away for good.
func (s *sched) leave(p *proc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == p.turn {
		s.current = nil
	}
	s.next()
}

// kick looks whether somebody can run after something came from outside.
func (s *sched) kick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next()
}

// next gives the turn to the first that can run. The caller holds mu.
func (s *sched) next() {
	for s.current == nil {
		var first *ticket
		for i, t := range s.waiting {
			if t.ready == nil || t.ready() || !t.until.IsZero() && !t.until.After(s.now) {
				s.waiting = slices.Delete(s.waiting, i, i+1)
				s.current = t.turn
				close(t.given)
				return
			}
			if !t.until.IsZero() && (first == nil || t.until.Before(first.until)) {
				first = t
			}
		}
		if first == nil {
			return // all wait for the outside
		}
		s.now = first.until
	}
}

// end lets everybody run: the machine is being closed.
func (s *sched) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for _, t := range s.waiting {
		close(t.given)
	}
	s.waiting = nil
}

// left is how long it is until t, at least a nanosecond.
func (s *sched) left(t time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(t.Sub(s.now), time.Nanosecond)
}

// kick tells a deterministic machine that something has changed from outside.
func (m *Machine) kick() {
	if m.sched != nil {
		m.sched.kick()
	}
}

// pause waits for c to be closed or ctx to end; it is how a process waits.
func (m *Machine) pause(ctx context.Context, c <-chan struct{}) {
	if s := m.sched; s != nil {
		if p := procOf(ctx); p != nil {
			var left time.Duration
			u, timed := ctx.Value(untilKey{}).(*until)
			if timed {
				left = s.left(u.t)
			}
			s.block(p, func() bool {
				select {
				case <-c:
					return true
				default:
					return ctx.Err() != nil
				}
			}, left)
			if timed && s.left(u.t) <= time.Nanosecond {
				u.cancel()
			}
			return
		}
	}
	select {
	case <-c:
	case <-ctx.Done():
	}
}

// work runs fn as a process of its own goroutine.
func (m *Machine) work(p *proc, fn func()) {
	var turn <-chan struct{}
	if m.sched != nil {
		turn = m.sched.enter(p)
	}
	m.wg.Add(1)
	go func() {
		defer m.wg.Done()
		if turn != nil {
			<-turn
			defer m.sched.leave(p)
		}
		fn()
	}()
}

// untilKey finds the time that ends a context.
type untilKey struct{}

// deadline is a context that ends after d, by the machine's clock.
func (m *Machine) deadline(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if m.sched == nil {
		return context.WithTimeout(ctx, d)
	}
	inner, cancel := context.WithCancel(ctx)
	m.sched.mu.Lock()
	t := m.sched.now.Add(d)
	m.sched.mu.Unlock()
	return &until{inner, t, cancel}, cancel
}

// until is a context that ends at a time of a deterministic machine's clock.
type until struct {
	context.Context
	t      time.Time
	cancel context.CancelFunc
}

// Value implements context.Context.
func (u *until) Value(key any) any {
	if _, ok := key.(untilKey); ok {
		return u
	}
	return u.Context.Value(key)
}
