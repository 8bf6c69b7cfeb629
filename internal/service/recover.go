package service

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/failpoint"
	"github.com/carrel-dev/carrel/internal/linux/overlay"
	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/carrel-dev/carrel/internal/service/timeline"
	"github.com/carrel-dev/carrel/internal/state"
)

const (
	opRecover     = "recover sandboxes"
	recoverAtOnce = 16               // adoptions at once
	recoverTime   = 30 * time.Second // for one
)

// recovery takes over the sandboxes and snapshots of an earlier service.
type recovery struct {
	opts      *Options
	log       *slog.Logger
	table     *table
	snaps     *timeline.Index
	journal   *journal
	archive   *archive
	greeter   *greeter
	networks  *networks
	lifecycle *lifecycle
	moments   *moments
	nursery   *nursery
	lost      *lostAndFound
}

// recover adopts the sandboxes that still run, finishes the earlier service's unfinished work, and
// reports lost sandboxes.
func (r *recovery) recover(ctx context.Context) error {
	records, err := r.opts.Store.Sandboxes(ctx)
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
			kept, err := r.recoverOne(ctx, rec)
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
	if ctx.Err() != nil { // cut short: records not yet seen must not be swept
		return &carrel.Error{Op: opRecover, Kind: carrel.TimedOut, Err: context.Cause(ctx)}
	}
	dead, err := r.opts.Store.Tombstones(ctx)
	if err != nil {
		return &carrel.Error{Op: opRecover, Kind: carrel.KindOf(err), Err: err}
	}
	for _, rec := range records { // each is known or buried by now
		dead.Sandboxes = append(dead.Sandboxes, rec.Sandbox.ID)
	}
	r.sweep(ctx, known, dead.Sandboxes)
	return nil
}

// recoverOne handles one record. kept says that the sandbox or its data must stay. Only a failing
// store is an error. A sandbox that can't be adopted now must not stop the service, and the next
// service tries again.
func (r *recovery) recoverOne(ctx context.Context, rec state.Record) (kept bool, err error) {
	id := rec.Sandbox.ID
	log := r.log.With("sandbox", id)
	if _, err := carrel.ParseID(string(id)); err != nil {
		log.Error("a record with a bad ID is left alone", "err", err)
		return true, nil
	}
	drv, err := r.opts.Drivers.Get(rec.Sandbox.Tier)
	if err != nil {
		log.Error("a sandbox is left alone", "err", err)
		return true, nil
	}
	var inst driver.Instance
	gone := errStopped
	if len(rec.Handle) > 0 {
		inst, err = drv.Recover(ctx, rec.Handle)
		if err != nil {
			gone = err
		}
		if err != nil && !errors.Is(err, carrel.NotFound) {
			log.Error("a sandbox could not be adopted and is left alone", "err", err)
			r.archive.builds.leave(id, err)
			if rec.Sandbox.State == carrel.Paused { // its state does not depend on the instance
				r.recoverPaused(ctx, rec, nil)
			}
			return true, nil
		}
	}
	switch rec.Sandbox.State {
	case carrel.Paused:
		if inst == nil && r.pausedLater(ctx, rec) {
			return false, nil
		}
		return r.recoverPaused(ctx, rec, inst), nil
	case state.Warm:
		return r.nursery.recover(ctx, rec, inst)
	}
	switch {
	case rec.Sandbox.State != carrel.Running: // half made, or half ended
		if inst != nil {
			if err := inst.Destroy(ctx); err != nil {
				log.Error("a half-made sandbox is left alone", "err", err)
				return true, nil
			}
		}
		return false, r.bury(ctx, rec, verdict{carrel.EndLost, "the service stopped before it was made"})
	case inst != nil && failpoint.Mutant("adopt"):
		return false, r.bury(ctx, rec, verdict{carrel.EndLost, "a test took its adoption out"})
	case inst == nil:
		if r.pausedLater(ctx, rec) {
			return false, nil
		}
		return false, r.bury(ctx, rec, verdict{carrel.EndLost,
			cmp.Or(r.opts.LostReason, "it was gone when the service came back: "+gone.Error())})
	}
	tctx, cancel := context.WithTimeout(ctx, undoTime) // other sandboxes wait for their recovery
	defer cancel()
	if err := thaw(tctx, rec.Sandbox.ID, inst); err != nil { // the earlier service died during a pause
		log.Error("a sandbox could not be thawed", "err", err)
	}
	r.adopt(rec, inst)
	return true, nil
}

// errStopped is the reason why a sandbox is gone if its driver knows none.
var errStopped = errors.New("the machine or the sandbox was stopped meanwhile")

// pausedLater finds the content of a pause that a sandbox's record does not know. The record is
// older than the pause, or the machine stopped before the record was written. The sandbox is then
// paused there.
func (r *recovery) pausedLater(ctx context.Context, rec state.Record) bool {
	sr, ok := r.lost.lastPause(rec.Sandbox.ID)
	if had, there := r.snaps.Get(rec.Paused); !ok || there && had.Snapshot.Created.After(sr.Snapshot.Created) {
		return false
	}
	paused := pausedAt(sr)
	if err := r.archive.records.apply(ctx, state.Change{Put: []state.Record{paused}, PutSnapshots: []state.SnapshotRecord{sr}}); err != nil {
		r.log.Error("record a pause that was not recorded", "sandbox", rec.Sandbox.ID, "err", err)
		return true // nothing is buried, so the next service tries again
	}
	r.log.Warn("a sandbox is paused at a moment that its record did not know", "sandbox", rec.Sandbox.ID, "snapshot", sr.Snapshot.ID)
	r.lost.claimed(sr.Snapshot.ID)
	r.recoverPaused(ctx, paused, nil)
	return true
}

// recoverPaused takes over a paused sandbox. It removes an instance left from before the pause or
// from an unfinished resumption. kept says that this failed.
func (r *recovery) recoverPaused(ctx context.Context, rec state.Record, inst driver.Instance) (kept bool) {
	b := r.table.newBox(rec, r.egress(rec), func(error) {})
	close(b.up)
	b.rec.Sandbox.Domain = r.opts.Domain
	if inst != nil {
		if err := inst.Destroy(ctx); err != nil {
			r.log.Error("what is left of a paused sandbox", "sandbox", b.id, "err", err)
			b.left, kept = inst, true
		}
	}
	r.table.adopt(b, false)
	if _, ok := r.snaps.Get(rec.Paused); !ok {
		r.log.Error("the snapshot that a sandbox would resume from is lost", "sandbox", b.id, "snapshot", rec.Paused)
	}
	return kept
}

// egress compiles a recorded network. If this service refuses the rules, the policy allows nothing
// until a caller sets new rules.
func (r *recovery) egress(rec state.Record) *policy.Policy {
	p, err := compileNetwork(opRecover, rec.Sandbox.Network)
	if err != nil {
		r.log.Error("nothing gets out of an adopted sandbox", "sandbox", rec.Sandbox.ID, "err", err)
		return &policy.Policy{}
	}
	return p
}

// bury forgets a sandbox that no longer exists. It reports the end, unless the earlier service did,
// or never reported the start.
func (r *recovery) bury(ctx context.Context, rec state.Record, v verdict) error {
	id := rec.Sandbox.ID
	told, err := r.journal.eventsOf(ctx, id)
	if err != nil {
		return err
	}
	n := len(told)
	begun := n > 0 || rec.Sandbox.State == carrel.Running // its first events may have been removed
	if begun && (n == 0 || told[n-1].Type != eventEnded) {
		if err := r.journal.emit(ctx, endedEvent(rec.Sandbox, v)); err != nil {
			return err
		}
	}
	if err := r.opts.Store.DeleteSandbox(ctx, id); err != nil {
		return err
	}
	r.archive.dropOf(ctx, id)
	r.table.noteEnd(rec.Sandbox, v)
	return overlay.Remove(filepath.Join(r.opts.Dir, string(id)))
}

// adopt puts a surviving sandbox into the table, with its old end time.
func (r *recovery) adopt(rec state.Record, inst driver.Instance) {
	id := rec.Sandbox.ID
	b := r.table.newBox(rec, r.egress(rec), func(error) {})
	b.inst = inst
	b.use.last = time.Now()
	close(b.up)
	b.rec.Sandbox.Domain = r.opts.Domain // it may have changed
	l := &line{inst: inst}
	b.conn = l.conn(rec.Sandbox)
	if err := r.networks.applyNetwork(opRecover, b); err != nil {
		r.log.Error("nothing gets out of an adopted sandbox", "sandbox", id, "err", err)
	}
	r.table.adopt(b, true)
	r.opts.Meter.Adopted(id)
	r.lifecycle.expiry.set(b, rec.Sandbox.Ends)
	r.table.spawn(func() { r.lifecycle.watch(b, inst) })
	r.table.spawn(func() { r.reintroduce(b, l) })
}

// reintroduce repeats /init. The earlier service may have died after it wrote the record and before
// the guest answered. The guest's clock may also be wrong.
func (r *recovery) reintroduce(b *box, l *line) {
	ctx, cancel := context.WithTimeout(r.table.ctx, r.opts.StartTimeout)
	defer cancel()
	defer l.hangUp()
	err := r.greeter.introduce(ctx, b, l)
	switch {
	case r.table.ctx.Err() != nil, isClosed(b.gone):
	case err != nil:
		r.log.Error("the guest of an adopted sandbox does not answer", "sandbox", b.id, "err", err)
	default:
		if err := r.journal.emit(r.table.ctx, carrel.Event{Type: eventAdopted, ID: b.id, Message: "found running by a new service and taken over"}); err != nil && r.table.ctx.Err() == nil {
			r.log.Error("write event", "sandbox", b.id, "err", err)
		}
	}
}

// sweep removes everything of sandboxes that are dead: that had a record when this service began,
// or have a tombstone. It keeps known sandboxes, and those that have neither a record nor a
// tombstone.
func (r *recovery) sweep(ctx context.Context, known, dead []carrel.ID) {
	entries, err := os.ReadDir(r.opts.Dir)
	if err != nil { // nobody can say which sandboxes to keep
		r.log.Error("sweep leftovers", "err", err)
		return
	}
	keep, gone := idSet(known), idSet(dead)
	var left []string
	for _, e := range entries {
		id, err := carrel.ParseID(e.Name())
		switch {
		case err != nil || keep[id]:
		case gone[id] || failpoint.Mutant("unrecorded-sandboxes"):
			left = append(left, e.Name())
		case os.Remove(filepath.Join(r.opts.Dir, e.Name())) == nil:
			// It was empty: its creation died before its record was written, and before anything of
			// it ran (see driver.Sweeper).
		default:
			r.lost.addSandbox(id)
			known = append(known, id)
		}
	}
	for _, drv := range r.opts.Drivers.All() {
		if sw, ok := driver.As[driver.Sweeper](drv); ok {
			if err := sw.Sweep(ctx, known); err != nil {
				r.log.Error("sweep leftovers", "driver", drv.Info().Name, "err", err)
			}
		}
	}
	for _, name := range left {
		// What an overlay leaves has directories that even their owner may not read.
		if err := overlay.Remove(filepath.Join(r.opts.Dir, name)); err != nil {
			r.log.Error("sweep leftovers", "err", err)
		}
	}
}

// idSet is a set of sandboxes.
func idSet(ids []carrel.ID) map[carrel.ID]bool {
	set := make(map[carrel.ID]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}

// wakeUp resumes a sandbox whose rollback the earlier service did not finish.
func (r *recovery) wakeUp(b *box) {
	if _, _, err := r.moments.Resume(r.table.ctx, b.id, carrel.ResumeOptions{}); err != nil && r.table.ctx.Err() == nil && !errors.Is(err, carrel.NotFound) {
		r.log.Error("finish a rollback", "sandbox", b.id, "err", err)
		r.moments.staysPaused(b)
	}
}
