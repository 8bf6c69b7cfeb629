package service

import (
	"context"
	"log/slog"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/carrel-dev/carrel/internal/service/timeline"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/trace"
)

// records writes the records of sandboxes and snapshots to the store.
type records struct {
	opts  *Options
	log   *slog.Logger
	table *table
	snaps *timeline.Index
}

// update changes the record of a running sandbox, first on disk and then in memory.
func (r *records) update(ctx context.Context, op string, b *box, change func(*state.Record)) (carrel.Sandbox, error) {
	return r.updateRules(ctx, op, b, nil, func(rec *state.Record) error { change(rec); return nil })
}

// updateRules is update for a change of the record's network. egress is compiled from the new
// network. It is nil when the change leaves the network alone.
func (r *records) updateRules(ctx context.Context, op string, b *box, egress *policy.Policy, change func(*state.Record) error) (carrel.Sandbox, error) {
	b.save.Lock()
	defer b.save.Unlock()
	rec := b.record()
	if err := b.running(op); err != nil {
		return carrel.Sandbox{}, err
	}
	if err := change(&rec); err != nil {
		return carrel.Sandbox{}, err
	}
	if err := r.opts.Store.PutSandbox(ctx, rec); err != nil {
		return carrel.Sandbox{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	st := b.rec.Sandbox.State // an end or a pause that began since then goes on
	b.rec = rec
	b.rec.Sandbox.State = st
	b.enrollLocked()
	if egress != nil {
		b.egress = egress
	}
	if st == carrel.Stopping {
		return carrel.Sandbox{}, b.runningLocked(op)
	}
	return publicSandbox(rec.Sandbox), nil
}

// updatePaused changes the record of a paused sandbox, first on disk and then in memory: change is
// called for both. done is false when the sandbox is no longer
// paused; nothing has changed then.
func (r *records) updatePaused(ctx context.Context, b *box, change func(*state.Record) error) (_ carrel.Sandbox, done bool, err error) {
	b.save.Lock()
	defer b.save.Unlock()
	rec := b.record()
	if rec.Sandbox.State != carrel.Paused {
		return carrel.Sandbox{}, false, nil
	}
	if err := change(&rec); err != nil {
		return carrel.Sandbox{}, false, err
	}
	if err := r.opts.Store.PutSandbox(ctx, rec); err != nil {
		return carrel.Sandbox{}, false, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := change(&b.rec); err != nil { // a resumption or an end that began since then goes on
		return carrel.Sandbox{}, false, err
	}
	return publicSandbox(b.rec.Sandbox), true, nil
}

// remember writes the present record. An error is only logged.
func (r *records) remember(ctx context.Context, b *box) {
	b.save.Lock()
	defer b.save.Unlock()
	if err := r.opts.Store.PutSandbox(ctx, b.record()); err != nil {
		r.log.Error("write record", "sandbox", b.id, "err", err)
	}
}

// putSandbox writes a record as part of an operation.
func (r *records) putSandbox(ctx context.Context, rec state.Record) error {
	span := trace.Mark(ctx, "record")
	err := r.opts.Store.PutSandbox(ctx, rec)
	span.EndWith(err)
	return err
}

// unrecord deletes the record of a failed creation. It keeps the record if a later step could not
// be undone, because the next service needs it to finish that.
func (r *records) unrecord(b *box) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.table.ctx), undoTime)
	defer cancel()
	b.mu.Lock()
	stuck := b.failed != nil
	b.undoing, b.rec.Sandbox.State = true, carrel.Stopping
	b.enrollLocked()
	b.mu.Unlock()
	if stuck {
		r.remember(ctx, b) // the next service finishes it
		return
	}
	if err := r.opts.Store.DeleteSandbox(ctx, b.id); err != nil {
		r.log.Error("delete record", "sandbox", b.id, "err", err)
	}
}

// apply writes a change to the store and then to the index.
func (r *records) apply(ctx context.Context, c state.Change) error {
	if err := r.opts.Store.Apply(ctx, c); err != nil {
		return err
	}
	for _, id := range c.DeleteSnapshots {
		r.snaps.Drop(id)
	}
	r.snaps.Put(c.PutSnapshots...)
	return nil
}

// takeBack writes the state before a failed write again. The failed write may have reached the
// disk, and the next service would then believe it. The caller holds box.save.
func (r *records) takeBack(ctx context.Context, b *box, put []state.SnapshotRecord) {
	rec, ok := b.durable()
	if !ok {
		return // its end deletes the record
	}
	c := state.Change{Put: []state.Record{rec}}
	for _, sr := range put {
		c.DeleteSnapshots = append(c.DeleteSnapshots, sr.Snapshot.ID)
	}
	if err := r.apply(ctx, c); err != nil {
		r.log.Error("take back a record that could not be written", "sandbox", b.id, "err", err)
	}
}
