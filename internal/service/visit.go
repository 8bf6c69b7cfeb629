package service

import (
	"context"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/guest"
)

// use is how much a sandbox is being used from outside. It is guarded by box.mu.
type use struct {
	open int       // requests and connections under way
	last time.Time // when one began or ended, or the sandbox did
	met  bool      // this instance has had a request
}

// leastAwake is how long a sandbox stays that a request woke, at least: one that was
// last given seconds would else sleep again after each. E2B has the same.
const leastAwake = 5 * time.Minute

// Visit returns the way to a sandbox's ports for one request, which keeps it from
// being idle until done is called. A paused sandbox that wakes by itself is resumed
// first, and one that is being paused or resumed is waited for. Errors: NotFound,
// Conflict.
func (m *moments) Visit(ctx context.Context, id carrel.ID) (conn *guest.Conn, done func(), err error) {
	conn, first, done, err := m.visit(ctx, id, true)
	if first {
		_, span := m.opts.Traces.Begin(ctx, "first request", id)
		leave := done
		done = func() { span.End(); leave() }
	}
	return conn, done, err
}

// visit is Visit; first says that the instance had no request before this one. A visit that is none itself only looks.
func (m *moments) visit(ctx context.Context, id carrel.ID, request bool) (conn *guest.Conn, first bool, done func(), err error) {
	const op = "connect to sandbox"
	b, err := m.table.find(op, id)
	if err != nil {
		return nil, false, nil, err
	}
	for {
		b.mu.Lock()
		st, l := b.rec.Sandbox.State, b.rec.Sandbox.Lifecycle
		wakes := (l.AutoResume || l.Idle.After > 0) && !b.rec.Sound
		if st == carrel.Running {
			b.use.open++
			b.use.last = time.Now()
			b.samples.stir()
			conn, first = b.conn, request && !b.use.met
			b.use.met = b.use.met || request
		}
		err := b.openLocked(op)
		b.mu.Unlock()
		switch {
		case st == carrel.Running:
			return conn, first, sync.OnceFunc(b.leaveUse), nil
		case st == carrel.Paused && wakes, st == carrel.Resuming:
			_, _, err = m.bringBack(ctx, id, comeback{least: leastAwake})
		case st == carrel.Pausing && wakes:
			err = b.settled(ctx)
		default:
			return nil, false, nil, err
		}
		if err != nil {
			return nil, false, nil, err
		}
	}
}

// leaveUse ends one visit.
func (b *box) leaveUse() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.use.open--
	b.use.last = time.Now()
}
