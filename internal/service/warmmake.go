package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/carrel-dev/carrel/internal/admission"
	"github.com/carrel-dev/carrel/internal/cleanup"
	"github.com/carrel-dev/carrel/internal/pool"
	"github.com/carrel-dev/carrel/internal/state"
)

// refill makes one more of a key.
func (s *Service) refill(key pool.Key) {
	w := &s.warm
	began := time.Now()
	w.mu.Lock()
	k := w.kinds[key]
	w.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(s.ctx, s.opts.StartTimeout, fmt.Errorf("it was not ready within %v", s.opts.StartTimeout))
	defer cancel()
	err := errors.New("nobody knows any more how to make it")
	if k != nil {
		err = s.makeWarm(ctx, key, k)
	}
	if err != nil && s.ctx.Err() == nil && !errors.Is(err, errUnripe) && !errors.Is(err, admission.ErrBusy) {
		s.log.Warn(opWarm, "kind", key, "err", err)
	}
	w.made(key, time.Since(began), err)
	w.wake()
}

// makeWarm makes one sandbox and puts it into the pool, or leaves nothing.
func (s *Service) makeWarm(ctx context.Context, key pool.Key, k *kind) (err error) {
	p, now, err := s.planWarm(ctx, k)
	if err != nil {
		return err
	}
	if now != key {
		s.warm.recheck()
		return errors.New("its template has changed")
	}
	pass, err := s.enterSpare(ctx, p.rec.Sandbox, "refill")
	if err != nil {
		return err
	}
	defer func() { pass.Done(err) }()
	if s.openGolden(ctx, p) {
		defer p.from.release() // follow has a share of its own
	}
	p.rec.Sandbox.State, p.rec.Sandbox.AccessToken = state.Warm, newToken()
	b := s.newBox(p.rec, func(error) {})
	var undo cleanup.Stack
	defer undo.Run()
	if err := os.Mkdir(b.dir, 0o700); err != nil {
		return fmt.Errorf("make the sandbox's directory: %w", err)
	}
	undo.Add(func() { _ = os.RemoveAll(b.dir) })
	if err := s.recordWarm(ctx, b); err != nil {
		return err
	}
	undo.Add(func() { s.unrecord(b) })
	inst, line, err := s.stand(ctx, b, p.driver, p.root, p.from)
	if err != nil {
		s.spoilGolden(p, err)
		return err
	}
	undo.Add(func() { s.destroy(b, inst) })
	undo.Add(line.hangUp)
	b.adopt(inst, line.conn(b.rec.Sandbox), p.ttl)
	if err := p.from.check(ctx); err != nil {
		s.spoilGolden(p, err)
		return err
	}
	if err := s.placeholder(ctx, b, line); err != nil {
		return err
	}
	if err := s.recordWarm(ctx, b); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(b.dir, readyMark), nil, 0o600); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	undo.Release()
	s.letGo(b.id, inst, p.from.share())
	told := s.initRequest(b.record())
	s.shelve(&warm{box: b, line: line, key: key, boots: p.from.boots(), told: &told, driver: p.driver})
	return nil
}

// recordWarm writes the record of one that is nobody's yet, without its token: nobody
// is to know it. What a guest was told that this does not hold, the next service does not know
// and tells it again.
func (s *Service) recordWarm(ctx context.Context, b *box) error {
	rec := b.record()
	rec.Sandbox.AccessToken, rec.Env = "", nil
	return s.opts.Store.PutSandbox(ctx, rec)
}

// shelve puts one into the pool and watches it.
func (s *Service) shelve(one *warm) {
	ctx, stop := context.WithCancel(s.ctx)
	one.stop = stop
	w := &s.warm
	w.mu.Lock()
	one.fresh = time.Now()
	w.ready[one.key] = append(w.ready[one.key], one)
	w.mu.Unlock()
	s.spawn(func() { // where it can't, Close discards it
		defer stop()
		_, err := one.line.inst.Wait(ctx)
		if ctx.Err() != nil || !w.remove(one) {
			return
		}
		s.log.Warn("a sandbox that was ready ended by itself", "sandbox", one.box.id, "err", err)
		s.discard(one)
		w.wake()
	})
}
