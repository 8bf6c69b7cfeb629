package service

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/pool"
	"github.com/carrel-dev/carrel/internal/state"
)

// recoverWarm deals with one that an earlier service had ready. It is taken over where it
// is still of use and certainly nobody's; else it is ended. kept says that it must stay.
func (s *Service) recoverWarm(ctx context.Context, rec state.Record, inst driver.Instance) (kept bool, err error) {
	id := rec.Sandbox.ID
	if inst == nil {
		return false, s.forgetWarm(ctx, id)
	}
	b := s.newBox(rec, func(error) {})
	b.rec.Sandbox.AccessToken = newToken()
	one := &warm{box: b, line: &line{inst: inst}, boots: rec.Sandbox.Generation == 0, stop: func() {}}
	b.inst, b.conn = inst, one.line.conn(b.rec.Sandbox)
	if s.canRecover(ctx, one) && s.spawn(func() { s.reviveWarm(one) }) {
		return true, nil
	}
	s.discard(one)
	s.warm.mu.Lock()
	defer s.warm.mu.Unlock()
	return slices.Contains(s.warm.stuck, one), nil
}

// canRecover reports whether one that an earlier service had ready is of use, and if so
// counts it as being made.
func (s *Service) canRecover(ctx context.Context, one *warm) bool {
	w := &s.warm
	rec := one.box.rec
	if _, err := os.Stat(filepath.Join(one.box.dir, readyMark)); err != nil || !w.on() {
		return false
	}
	k := &kind{template: rec.Sandbox.Template, tier: rec.Sandbox.Tier, limits: rec.Sandbox.Limits}
	if rec.Sandbox.Alias != "" {
		k.template = rec.Sandbox.Alias
	}
	p, key, err := s.planWarm(ctx, k)
	if err != nil || keyOfRecord(rec, rec.Guest) != key {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	making := 0
	for _, n := range w.making {
		making += n
	}
	if w.countLocked()+making >= w.opts.Cap {
		return false
	}
	if w.kinds[key] == nil {
		w.kinds[key] = kindOf(p)
	}
	one.key, one.driver = key, p.driver
	w.making[key]++
	return true
}

// reviveWarm makes sure of one that an earlier service had ready: its guest gets a new
// identity that nobody knows.
func (s *Service) reviveWarm(one *warm) {
	ctx, cancel := context.WithTimeout(s.ctx, recoverTime)
	defer cancel()
	err := s.greet(ctx, one.box, one.line)
	if err == nil {
		s.warm.sizerSeen(one.key)
		s.shelve(one)
	} else {
		s.discard(one)
	}
	s.warm.made(one.key, 0, err)
	s.warm.wake()
}

// sizerSeen has one count as asked for: an earlier service saw the demand.
func (w *warmPool) sizerSeen(key pool.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sizer.Asked(key, time.Now())
}
