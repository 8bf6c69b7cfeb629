package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/failpoint"
	"github.com/carrel-dev/carrel/internal/state"
)

const opRollback = "roll back sandbox"

// Rollback implements carrel.Moments. What could make it fail is looked at while the
// sandbox still runs; then the record says that it is paused at the moment asked for
// and on its way back, and only then its present is given up.
func (s *Service) Rollback(ctx context.Context, id carrel.ID, to carrel.SnapshotID, o carrel.RollbackOptions) (carrel.Sandbox, error) {
	b, err := s.find(opRollback, id)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	sr, err := s.findSnapshot(opRollback, string(to))
	if err != nil {
		return carrel.Sandbox{}, err
	}
	if b.public().State == carrel.Starting {
		return carrel.Sandbox{}, b.running(opRollback)
	}
	// Who asked may hang up: what began is finished.
	ctx, release, err := s.take(context.WithoutCancel(ctx), opRollback, b)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	defer release()
	if err := s.rollback(ctx, b, sr, o); err != nil {
		err = b.momentError(ctx, opRollback, err)
		s.log.Warn("roll back sandbox", "sandbox", id, "snapshot", to, "err", err)
		return carrel.Sandbox{}, err
	}
	return b.public(), nil
}

// rollback is Rollback with the turn.
func (s *Service) rollback(ctx context.Context, b *box, sr state.SnapshotRecord, o carrel.RollbackOptions) (err error) {
	to := sr.Snapshot.ID
	if sr.Snapshot.Sandbox != b.id && !s.snaps.ancestor(to, b.public().Snapshot) {
		return &carrel.Error{Kind: carrel.Invalid, Field: "snapshotID",
			Err:  fmt.Errorf("snapshot %s is a moment of sandbox %s and not in this one's past", to, sr.Snapshot.Sandbox),
			Hint: "make a new sandbox of it: carrel create --from " + string(to)}
	}
	from, err := s.restorable(ctx, b, to)
	if err != nil {
		return err
	}
	defer from.release()
	// Before its present is given up: one that is refused runs on.
	ctx, pass, err := s.enterWake(ctx, opRollback, b)
	if err != nil {
		return err
	}
	defer func() { pass.Done(err) }()
	switch b.public().State {
	case carrel.Running:
		if err := s.giveUp(ctx, b, sr, o); err != nil {
			return err
		}
	case carrel.Paused:
		if err := s.recordPaused(ctx, b, nil, to, true); err != nil {
			return err
		}
	default:
		return b.running(opRollback)
	}
	if err := s.resume(ctx, b, comeback{from: from}); err != nil {
		s.staysPaused(b)
		return fmt.Errorf("it is now paused at snapshot %s: %w", to, err)
	}
	s.tell(carrel.Event{Type: eventRolledBack, ID: b.id, Message: "rolled back to snapshot " + string(to),
		Fields: map[string]string{"snapshot": string(to)}})
	s.spawn(func() { s.prune(b.id) })
	return nil
}

// restorable opens a snapshot and makes sure, as far as that goes beforehand, that it
// can be restored: its content is whole, and the driver will take it.
func (s *Service) restorable(ctx context.Context, b *box, id carrel.SnapshotID) (_ *origin, err error) {
	o, err := s.open(ctx, id, false, false)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			o.release()
		}
	}()
	drv, _, err := s.home(ctx, b.record())
	if err != nil {
		return nil, err
	}
	r, err := restorer(drv)
	if err != nil {
		return nil, err
	}
	if err := r.CanRestore(o.info, driver.RestoreOptions{}); err != nil {
		return nil, err
	}
	if err := o.verify(ctx); err != nil {
		return nil, err
	}
	o.verify = func(context.Context) error { return nil } // it has just been
	return o, nil
}

// giveUp takes a running sandbox to paused at another moment, and its present away.
func (s *Service) giveUp(ctx context.Context, b *box, sr state.SnapshotRecord, o carrel.RollbackOptions) error {
	if !b.setState(carrel.Running, carrel.Pausing) {
		return b.running(opRollback)
	}
	s.leave(ctx, b, fmt.Sprintf("the sandbox was rolled back to snapshot %s: what this stream belonged to is gone", sr.Snapshot.ID))
	var put []state.SnapshotRecord
	if o.Keep {
		kept, err := s.still(ctx, b, wish{cause: carrel.CauseRollback, detail: string(sr.Snapshot.ID)})
		if err != nil {
			s.unpause(b)
			return err
		}
		put = append(put, kept)
	}
	if err := s.recordPaused(ctx, b, put, sr.Snapshot.ID, true); err != nil {
		for _, k := range put {
			s.scrap(k.Snapshot.ID)
		}
		s.unpause(b)
		return err
	}
	_ = failpoint.Hit(pointTurned)
	s.putAway(b)
	return nil
}

// staysPaused writes that a sandbox whose rollback failed half way is not on its
// way back any more.
func (s *Service) staysPaused(b *box) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), undoTime)
	defer cancel()
	b.save.Lock()
	defer b.save.Unlock()
	rec := b.record()
	if rec.Sandbox.State != carrel.Paused || !rec.Wake {
		return
	}
	rec.Wake = false
	if err := s.opts.Store.PutSandbox(ctx, rec); err != nil {
		s.log.Error("write record", "sandbox", b.id, "err", err)
		return
	}
	b.mu.Lock()
	b.rec.Wake = false
	b.mu.Unlock()
}

// wakeUp resumes a sandbox that the service before left on its way back.
func (s *Service) wakeUp(b *box) {
	if _, _, err := s.Resume(s.ctx, b.id, carrel.ResumeOptions{}); err != nil && s.ctx.Err() == nil && !errors.Is(err, carrel.NotFound) {
		s.log.Error("finish a rollback", "sandbox", b.id, "err", err)
		s.staysPaused(b)
	}
}
