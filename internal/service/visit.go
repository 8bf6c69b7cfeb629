package service

import (
	"context"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/guest"
)

// use is how much a sandbox is used from outside. It is guarded by box.mu.
type use struct {
	open int       // requests and connections under way
	last time.Time // the last start or end of one, or the sandbox's start
	met  bool      // this instance has had a request
}

// leastAwake is how long a sandbox stays awake, at least, after a request woke it. Without this, a
// sandbox with a timeout of seconds would pause again after each request. E2B has the same value.
const leastAwake = 5 * time.Minute

// Visit returns a connection to a sandbox's ports for one request. The sandbox does not count as
// idle until done is called. Visit first resumes a paused sandbox that has automatic wake-up, and
// waits for a pause or a resumption under way. Errors: NotFound, Conflict.
func (m *moments) Visit(ctx context.Context, id carrel.ID) (conn *guest.Conn, done func(), err error) {
	conn, first, done, err := m.visit(ctx, id, true)
	if first {
		_, span := m.opts.Traces.Begin(ctx, "first request", id)
		leave := done
		done = func() { span.End(); leave() }
	}
	return conn, done, err
}

// visit is Visit. first says that the instance had no request before this one. When request is
// false, the visit does not count as the first request.
func (m *moments) visit(ctx context.Context, id carrel.ID, request bool) (conn *guest.Conn, first bool, done func(), err error) {
	const op = "connect to sandbox"
	b, err := m.table.find(op, id)
	if err != nil {
		return nil, false, nil, err
	}
	for {
		if err := m.tether.held(op, id); err != nil {
			return nil, false, nil, err
		}
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
