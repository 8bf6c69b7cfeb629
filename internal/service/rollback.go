package service

import (
	"context"
	"fmt"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/failpoint"
	"github.com/carrel-dev/carrel/internal/state"
)

const opRollback = "roll back sandbox"

// Rollback implements carrel.Moments. It makes all checks that could fail while the sandbox still
// runs. Then it writes a record that says: paused at the target snapshot, and on the way back. Only
// after that it gives up the sandbox's present state.
func (m *moments) Rollback(ctx context.Context, id carrel.ID, to carrel.SnapshotID, o carrel.RollbackOptions) (carrel.Sandbox, error) {
	b, err := m.table.find(opRollback, id)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	sr, err := m.archive.findSnapshot(ctx, opRollback, string(to))
	if err != nil {
		return carrel.Sandbox{}, err
	}
	if b.public().State == carrel.Starting {
		return carrel.Sandbox{}, b.running(opRollback)
	}
	// The caller may hang up, but the rollback is finished.
	ctx, release, err := m.table.take(context.WithoutCancel(ctx), opRollback, b)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	defer release()
	if err := m.rollback(ctx, b, sr, o); err != nil {
		err = b.momentError(ctx, opRollback, err)
		m.log.Warn("roll back sandbox", "sandbox", id, "snapshot", to, "err", err)
		return carrel.Sandbox{}, err
	}
	return b.public(), nil
}

// rollback is the part of Rollback that holds box.turn.
func (m *moments) rollback(ctx context.Context, b *box, sr state.SnapshotRecord, o carrel.RollbackOptions) (err error) {
	to := sr.Snapshot.ID
	if sr.Snapshot.Sandbox != b.id && !m.snaps.IsAncestor(to, b.public().Snapshot) {
		return &carrel.Error{Kind: carrel.Invalid, Field: "snapshotID",
			Err:  fmt.Errorf("snapshot %s is a moment of sandbox %s and not in this one's past", to, sr.Snapshot.Sandbox),
			Hint: "make a new sandbox of it: carrel create --from " + string(to)}
	}
	from, err := m.restorable(ctx, b, to)
	if err != nil {
		return err
	}
	defer from.release()
	// Wait before the present state is given up, so that a refused sandbox runs on.
	ctx, pass, err := m.gates.enterWake(ctx, opRollback, b)
	if err != nil {
		return err
	}
	defer func() { pass.Done(err) }()
	switch b.public().State {
	case carrel.Running:
		if err := m.giveUp(ctx, b, sr, o); err != nil {
			return err
		}
	case carrel.Paused:
		if err := m.recordPaused(ctx, b, nil, to, true); err != nil {
			return err
		}
	default:
		return b.running(opRollback)
	}
	if err := m.resume(ctx, b, comeback{from: from}); err != nil {
		m.staysPaused(b)
		return fmt.Errorf("it is now paused at snapshot %s: %w", to, err)
	}
	m.journal.tell(carrel.Event{Type: eventRolledBack, ID: b.id, Message: "rolled back to snapshot " + string(to),
		Fields: map[string]string{"snapshot": string(to)}})
	m.table.spawn(func() { m.archive.prune(b.id) })
	return nil
}

// restorable opens a snapshot and checks, as far as possible, that it can be restored: its content
// is whole, and the driver accepts it.
func (m *moments) restorable(ctx context.Context, b *box, id carrel.SnapshotID) (_ *origin, err error) {
	o, err := m.archive.open(ctx, id, false, false)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			o.release()
		}
	}()
	drv, _, err := m.launcher.home(ctx, b.record(), "")
	if err != nil {
		return nil, err
	}
	r, err := restorer(drv)
	if err != nil {
		return nil, err
	}
	if err := m.launcher.builds.fetch(ctx, drv, o.info); err != nil {
		return nil, err
	}
	if err := r.CanRestore(o.info, driver.RestoreOptions{}); err != nil {
		return nil, err
	}
	if err := o.verifyBefore(ctx); err != nil {
		return nil, err
	}
	o.verify = func(context.Context) error { return nil } // it has just been
	return o, nil
}

// giveUp pauses a running sandbox at another snapshot, and gives up its present state.
func (m *moments) giveUp(ctx context.Context, b *box, sr state.SnapshotRecord, o carrel.RollbackOptions) error {
	if !b.setState(carrel.Running, carrel.Pausing) {
		return b.running(opRollback)
	}
	m.greeter.leave(ctx, b, fmt.Sprintf("the sandbox was rolled back to snapshot %s: what this stream belonged to is gone", sr.Snapshot.ID))
	var put []state.SnapshotRecord
	if o.Keep {
		kept, err := m.still(ctx, b, wish{cause: carrel.CauseRollback, detail: string(sr.Snapshot.ID)})
		if err != nil {
			m.unpause(b)
			return err
		}
		put = append(put, kept)
	} else {
		b.mu.Lock()
		inst := b.inst
		b.mu.Unlock()
		m.opts.measureLast(ctx, b.id, inst)
	}
	if err := m.recordPaused(ctx, b, put, sr.Snapshot.ID, true); err != nil {
		for _, k := range put {
			m.archive.scrap(k.Snapshot.ID)
		}
		m.unpause(b)
		return err
	}
	_ = failpoint.Hit(pointTurned)
	m.putAway(b)
	return nil
}

// staysPaused writes that a sandbox is no longer on its way back, after its rollback failed
// halfway.
func (m *moments) staysPaused(b *box) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.table.ctx), undoTime)
	defer cancel()
	b.save.Lock()
	defer b.save.Unlock()
	rec := b.record()
	if rec.Sandbox.State != carrel.Paused || !rec.Wake {
		return
	}
	rec.Wake = false
	if err := m.opts.Store.PutSandbox(ctx, rec); err != nil {
		m.log.Error("write record", "sandbox", b.id, "err", err)
		return
	}
	b.mu.Lock()
	b.rec.Wake = false
	b.mu.Unlock()
}
