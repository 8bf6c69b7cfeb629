package service

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/state"
)

const (
	opRecover     = "recover sandboxes"
	recoverAtOnce = 16               // adoptions at once
	recoverTime   = 30 * time.Second // for one
)

// sweeper is an optional part of a driver: it removes what is left of sandboxes
// that nobody knows, after a daemon died between a creation and its record.
type sweeper interface {
	Sweep(ctx context.Context, known []carrel.ID) error
}

// recover adopts what an earlier service left running, finishes what it left half
// done, and tells what was lost.
func (s *Service) recover(ctx context.Context) error {
	records, err := s.opts.Store.Sandboxes(ctx)
	if err != nil {
		return &carrel.Error{Op: opRecover, Kind: carrel.KindOf(err), Err: err}
	}
	var mu sync.Mutex
	var known []carrel.ID
	var g errgroup.Group
	g.SetLimit(recoverAtOnce)
	for _, rec := range records {
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, recoverTime)
			defer cancel()
			kept, err := s.recoverOne(ctx, rec)
			if kept {
				mu.Lock()
				known = append(known, rec.Sandbox.ID)
				mu.Unlock()
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if ctx.Err() != nil { // cut short: what was not looked at must not be swept
		return &carrel.Error{Op: opRecover, Kind: carrel.TimedOut, Err: context.Cause(ctx)}
	}
	s.sweep(ctx, known)
	return nil
}

// recoverOne deals with one record. kept says that the sandbox, or what is known
// of it, must stay. Only a store that fails is an error: one sandbox that can't
// be adopted now must not stop the service, and is tried again by the next.
func (s *Service) recoverOne(ctx context.Context, rec state.Record) (kept bool, err error) {
	id := rec.Sandbox.ID
	log := s.log.With("sandbox", id)
	if _, err := carrel.ParseID(string(id)); err != nil {
		log.Error("a record with a bad ID is left alone", "err", err)
		return true, nil
	}
	drv, err := s.opts.Drivers.Get(rec.Sandbox.Tier)
	if err != nil {
		log.Error("a sandbox is left alone", "err", err)
		return true, nil
	}
	var inst driver.Instance
	if len(rec.Handle) > 0 {
		inst, err = drv.Recover(ctx, rec.Handle)
		if err != nil && !errors.Is(err, carrel.NotFound) {
			log.Error("a sandbox could not be adopted and is left alone", "err", err)
			if rec.Sandbox.State == carrel.Paused { // its state does not depend on that
				s.recoverPaused(ctx, rec, nil)
			}
			return true, nil
		}
	}
	switch rec.Sandbox.State {
	case carrel.Paused:
		return s.recoverPaused(ctx, rec, inst), nil
	case state.Warm:
		return s.recoverWarm(ctx, rec, inst)
	}
	switch {
	case rec.Sandbox.State != carrel.Running: // half made, or half ended
		if inst != nil {
			if err := inst.Destroy(ctx); err != nil {
				log.Error("a half-made sandbox is left alone", "err", err)
				return true, nil
			}
		}
		return false, s.bury(ctx, rec, verdict{carrel.EndLost, "the service stopped before it was made"})
	case inst == nil:
		return false, s.bury(ctx, rec, verdict{carrel.EndLost, "it was gone when the service came back: the machine or the sandbox was stopped meanwhile"})
	}
	if f, ok := driver.As[driver.Freezer](inst); ok { // the service before died while it paused it
		if err := f.Thaw(ctx); err != nil {
			log.Error("a sandbox could not be thawed", "err", err)
		}
	}
	s.adopt(rec, inst)
	return true, nil
}

// recoverPaused takes over a paused sandbox. What is left of the time before it was
// paused, or of a resumption that nobody finished, is removed; kept says that it
// could not be.
func (s *Service) recoverPaused(ctx context.Context, rec state.Record, inst driver.Instance) (kept bool) {
	b := s.newBox(rec, func(error) {})
	close(b.up)
	b.rec.Sandbox.Domain = s.opts.Domain
	if inst != nil {
		if err := inst.Destroy(ctx); err != nil {
			s.log.Error("what is left of a paused sandbox", "sandbox", b.id, "err", err)
			b.left, kept = inst, true
		}
	}
	s.mu.Lock()
	s.boxes[b.id] = b
	s.mu.Unlock()
	if _, ok := s.snaps.get(rec.Paused); !ok {
		s.log.Error("the snapshot that a sandbox would resume from is lost", "sandbox", b.id, "snapshot", rec.Paused)
	}
	return kept
}

// bury forgets a sandbox that is no more, and tells its end unless the service
// before did, or never told its start.
func (s *Service) bury(ctx context.Context, rec state.Record, v verdict) error {
	id := rec.Sandbox.ID
	told, err := s.eventsOf(ctx, id)
	if err != nil {
		return err
	}
	n := len(told)
	begun := n > 0 || rec.Sandbox.State == carrel.Running // its first events may be forgotten
	if begun && (n == 0 || told[n-1].Type != eventEnded) {
		if err := s.emit(ctx, endedEvent(rec.Sandbox, v)); err != nil {
			return err
		}
	}
	if err := s.opts.Store.DeleteSandbox(ctx, id); err != nil {
		return err
	}
	s.dropOf(ctx, id)
	s.mu.Lock()
	s.ended.add(id, v)
	s.mu.Unlock()
	return os.RemoveAll(filepath.Join(s.opts.Dir, string(id)))
}

// adopt puts a surviving sandbox into the table, with the deadline it had.
func (s *Service) adopt(rec state.Record, inst driver.Instance) {
	id := rec.Sandbox.ID
	b := s.newBox(rec, func(error) {})
	b.inst = inst
	b.use.last = time.Now()
	close(b.up)
	b.rec.Sandbox.Domain = s.opts.Domain // it may have changed
	l := &line{inst: inst}
	b.conn = l.conn(rec.Sandbox)
	if err := s.applyNetwork(opRecover, b); err != nil {
		s.log.Error("nothing gets out of an adopted sandbox", "sandbox", id, "err", err)
	}
	s.mu.Lock()
	s.boxes[id] = b
	s.live++
	s.mu.Unlock()
	s.expiry.set(b, rec.Sandbox.Ends)
	s.spawn(func() { s.watch(b, inst) })
	s.spawn(func() { s.reintroduce(b, l) })
}

// reintroduce repeats /init: the service before may have died between the record
// and the guest's answer, and the guest's clock may be off.
func (s *Service) reintroduce(b *box, l *line) {
	ctx, cancel := context.WithTimeout(s.ctx, s.opts.StartTimeout)
	defer cancel()
	defer l.hangUp()
	err := s.introduce(ctx, b, l)
	switch {
	case s.ctx.Err() != nil, isClosed(b.gone):
	case err != nil:
		s.log.Error("the guest of an adopted sandbox does not answer", "sandbox", b.id, "err", err)
	default:
		if err := s.emit(s.ctx, carrel.Event{Type: eventAdopted, ID: b.id, Message: "found running by a new service and taken over"}); err != nil && s.ctx.Err() == nil {
			s.log.Error("write event", "sandbox", b.id, "err", err)
		}
	}
}

// sweep removes what belongs to no known sandbox.
func (s *Service) sweep(ctx context.Context, known []carrel.ID) {
	for _, drv := range s.opts.Drivers.All() {
		if sw, ok := driver.As[sweeper](drv); ok {
			if err := sw.Sweep(ctx, known); err != nil {
				s.log.Error("sweep leftovers", "driver", drv.Info().Name, "err", err)
			}
		}
	}
	keep := map[string]bool{}
	for _, id := range known {
		keep[string(id)] = true
	}
	entries, err := os.ReadDir(s.opts.Dir)
	if err != nil {
		s.log.Error("sweep leftovers", "err", err)
		return
	}
	for _, e := range entries {
		if _, err := carrel.ParseID(e.Name()); err != nil || keep[e.Name()] {
			continue
		}
		if err := os.RemoveAll(filepath.Join(s.opts.Dir, e.Name())); err != nil {
			s.log.Error("sweep leftovers", "err", err)
		}
	}
}
