package service

import (
	"context"
	"time"

	"github.com/carrel-dev/carrel/internal/pool"
)

// freshTime is how long one that is ready is left alone. What it has in memory goes cold by and by: its
// host takes pages back, its connection is closed after a minute. After ten minutes the first
// command takes a quarter more of the processor's time than that of one which was just made.
const freshTime = 2 * time.Minute

// freshen has some that were left alone for long run a command again, and ends those whose guest does not
// answer any more: an adoption may not ask it anything. It does nothing while anybody wants the machine.
func (s *Service) freshen() {
	w := &s.warm
	before := time.Now().Add(-w.opts.Fresh) // each at most once: there is more to do
	for w.busy.Load() == 0 && s.ctx.Err() == nil {
		one := w.takeStale(before)
		if one == nil {
			return
		}
		err := s.refresh(one)
		if w.putBack(one, err == nil || s.ctx.Err() != nil) {
			continue
		}
		s.log.Warn("a sandbox that was ready is given up", "sandbox", one.box.id, "err", err)
		s.discard(one)
		w.wake()
	}
}

// refresh makes sure of one that is ready.
func (s *Service) refresh(one *warm) error {
	pass, err := s.gate.Spare(s.spareRequest(one.box.rec.Sandbox, "refresh"))
	if err != nil {
		return nil // another time
	}
	ctx, cancel := context.WithTimeout(s.ctx, touchTime)
	defer cancel()
	err = one.box.conn.Health(ctx)
	if err == nil {
		err = s.touch(ctx, one.box.conn, 1)
	}
	pass.Done(nil)
	return err
}

// takeStale takes out one that was last used before a time; nil where there is none, or memory
// is short.
func (w *warmPool) takeStale(before time.Time) *warm {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.advice != pool.Grow {
		return nil
	}
	for key, list := range w.ready {
		for i, one := range list {
			if one.fresh.Before(before) {
				w.ready[key] = append(list[:i:i], list[i+1:]...)
				w.away = one
				return one
			}
		}
	}
	return nil
}

// putBack puts one back that is well, unless its end was noticed meanwhile, and reports
// whether it did.
func (w *warmPool) putBack(one *warm, well bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away = nil
	if !well || one.dead {
		return false
	}
	one.fresh = time.Now()
	w.ready[one.key] = append(w.ready[one.key], one) // the newest is adopted first
	return true
}
