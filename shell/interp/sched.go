package interp

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// sched makes a machine deterministic. Its processes run one at a time. Their order depends only on
// their own actions. The clock stands still while any process can run. When all wait, the clock
// jumps to the end of the first sleep.
type sched struct {
	mu      sync.Mutex
	now     time.Time
	current *turn
	waiting []*ticket
	ended   bool // the machine is closed: all processes run
	rng     *rand.ChaCha8
}

// turn identifies a goroutine. A goroutine may work for several processes.
type turn struct{ _ byte }

// ticket is a goroutine that waits for its turn.
type ticket struct {
	turn  *turn
	ready func() bool // nil is at once
	until time.Time   // zero is for ever
	given chan struct{}
}

// epoch is the start time of a deterministic machine.
var epoch = time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)

func newSched(seed uint64) *sched {
	var key [32]byte
	for i := range 4 {
		binary.LittleEndian.PutUint64(key[8*i:], seed+uint64(i)*0x9e3779b97f4a7c15)
	}
	return &sched{now: epoch, rng: rand.NewChaCha8(key)}
}

// clock returns the virtual time. Each call advances it by a microsecond. So a program that polls
// the time without sleeping does not wait for ever.
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

// enter queues a new process. The process runs when the returned channel is closed. The goroutine
// that makes the process calls enter, so that the queue's order follows the program.
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

// block gives up the turn until ready returns true or d has passed. A d of 0 never passes.
func (s *sched) block(p *proc, ready func() bool, d time.Duration) {
	t := &ticket{turn: p.turn, ready: ready, given: make(chan struct{})}
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		time.Sleep(time.Millisecond) // the awaited event now comes by itself
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

// leave gives up the turn for good.
func (s *sched) leave(p *proc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == p.turn {
		s.current = nil
	}
	s.next()
}

// kick checks whether a process can run, after an event from outside.
func (s *sched) kick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next()
}

// next gives the turn to the first goroutine that can run. The caller holds mu.
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

// end lets all processes run, because the machine is being closed.
func (s *sched) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for _, t := range s.waiting {
		close(t.given)
	}
	s.waiting = nil
}

// left returns the time until t, at least a nanosecond.
func (s *sched) left(t time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(t.Sub(s.now), time.Nanosecond)
}

// kick tells a deterministic machine that something outside has changed.
func (m *Machine) kick() {
	if m.sched != nil {
		m.sched.kick()
	}
}

// pause waits until c is closed or ctx ends. Processes use it for every wait.
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

// work runs fn as a process that has its own goroutine.
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

// untilKey is the key for the end time of a context.
type untilKey struct{}

// deadline returns a context that ends after d by the machine's clock.
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

// until is a context that ends at a time on a deterministic machine's clock.
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
