package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/failpoint"
	"github.com/carrel-dev/carrel/internal/shortage"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/trace"
)

const (
	opPause   = "pause sandbox"
	leaveTime = 500 * time.Millisecond // for the guest to end its streams
	// freezeTime bounds the stop of all programs, which takes milliseconds.
	freezeTime = 30 * time.Second
)

// Pause implements carrel.Moments.
func (m *moments) Pause(ctx context.Context, id carrel.ID, o carrel.PauseOptions) (carrel.Sandbox, error) {
	if o.Cause == "" {
		o.Cause = carrel.CausePause
	}
	b, err := m.table.find(opPause, id)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	ctx, span := m.opts.Traces.Begin(ctx, "pause", id)
	sb, err := m.pauseIf(ctx, b, o, nil)
	span.EndWith(err)
	return sb, err
}

// pauseIf pauses a sandbox only if cond agrees. It calls cond with box.mu held when it has
// box.turn. If cond says no, it returns the sandbox unchanged.
func (m *moments) pauseIf(ctx context.Context, b *box, o carrel.PauseOptions, cond func() bool) (carrel.Sandbox, error) {
	switch st := b.public().State; st {
	case carrel.Paused, carrel.Pausing:
		return carrel.Sandbox{}, b.alreadyPaused(st)
	case carrel.Running:
	default:
		return carrel.Sandbox{}, b.running(opPause)
	}
	ctx, release, err := m.table.take(ctx, opPause, b)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	defer release()
	b.mu.Lock()
	st := b.rec.Sandbox.State
	wanted := cond == nil || cond()
	if st == carrel.Running && wanted {
		b.rec.Sandbox.State = carrel.Pausing
		b.enrollLocked()
	}
	b.mu.Unlock()
	switch {
	case st == carrel.Paused:
		return carrel.Sandbox{}, b.alreadyPaused(st)
	case st != carrel.Running:
		return carrel.Sandbox{}, b.running(opPause)
	case !wanted:
		return b.public(), nil
	}
	if err := m.pause(ctx, b, wish{cause: o.Cause, filesOnly: o.FilesOnly}); err != nil {
		err = b.momentError(ctx, opPause, err)
		m.log.Warn("pause sandbox", "sandbox", b.id, "err", err)
		return carrel.Sandbox{}, err
	}
	return b.public(), nil
}

func (b *box) alreadyPaused(st carrel.State) error {
	return &carrel.Error{Op: opPause, Kind: carrel.Conflict, ID: b.id, Err: fmt.Errorf("the sandbox is %s already", st)}
}

// pause takes a sandbox from pausing to paused, or back to running.
func (m *moments) pause(ctx context.Context, b *box, w wish) error {
	if most := m.opts.MaxPaused; most > 0 && m.table.paused() >= most {
		b.setState(carrel.Pausing, carrel.Running)
		return &carrel.Error{Kind: carrel.Exhausted, Err: fmt.Errorf("all %d sandboxes that may be paused are", most),
			Hint: "kill some, or raise the limit (carrel serve --max-paused)"}
	}
	if err := m.archive.mayKeep(b.record(), w.cause, 0); err != nil {
		b.setState(carrel.Pausing, carrel.Running)
		return err
	}
	span := trace.Mark(ctx, "end streams")
	m.greeter.leave(ctx, b, "the sandbox was paused: connect again, and it goes on")
	span.End()
	span = trace.Mark(ctx, "snapshot")
	sr, err := m.still(ctx, b, w)
	span.EndWith(err)
	if err == nil {
		span := trace.Mark(ctx, "record")
		b.mu.Lock()
		b.rec.Sound = w.filesOnly && w.cause == carrel.CausePause
		b.mu.Unlock()
		err = m.recordPaused(ctx, b, []state.SnapshotRecord{sr}, sr.Snapshot.ID, false)
		span.EndWith(err)
		if err != nil {
			m.archive.scrap(sr.Snapshot.ID)
		}
	}
	if err != nil {
		m.unpause(b)
		return err
	}
	_ = failpoint.Hit(pointRecorded)
	var told sync.WaitGroup
	told.Go(func() {
		m.journal.tell(carrel.Event{Type: eventPaused, ID: b.id, Message: fmt.Sprintf("paused (%s) as snapshot %s", w.cause, sr.Snapshot.ID),
			Fields: map[string]string{"snapshot": string(sr.Snapshot.ID), "cause": string(w.cause)}})
	})
	span = trace.Mark(ctx, "end the instance")
	m.putAway(b)
	told.Wait()
	span.End()
	m.table.spawn(func() { m.archive.prune(b.id) })
	return nil
}

// still freezes a sandbox and takes its snapshot.
func (m *moments) still(ctx context.Context, b *box, w wish) (state.SnapshotRecord, error) {
	b.mu.Lock()
	inst := b.inst
	b.mu.Unlock()
	if f, ok := driver.As[driver.Freezer](inst); ok {
		fctx, cancel := context.WithTimeoutCause(ctx, freezeTime,
			fmt.Errorf("the sandbox could not be stopped within %v: its kernel hangs; carrel kill ends it",
				freezeTime))
		err := f.Freeze(fctx)
		cancel()
		if err != nil {
			return state.SnapshotRecord{}, err
		}
	}
	if err := failpoint.Hit(pointFrozen); err != nil {
		return state.SnapshotRecord{}, err
	}
	m.opts.measureLast(ctx, b.id, inst)
	return m.archive.keep(ctx, b, w)
}

// recordPaused writes that a sandbox is paused at a snapshot. From here on it is paused, even if
// its instance can't be ended.
func (m *moments) recordPaused(ctx context.Context, b *box, put []state.SnapshotRecord, at carrel.SnapshotID, wake bool) error {
	b.save.Lock()
	defer b.save.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	rec := b.record()
	for i := range put {
		put[i].Snapshot.Parent = rec.Sandbox.Snapshot // the previous one may be deleted by now
	}
	rec.Sandbox.State, rec.Sandbox.Snapshot, rec.Paused, rec.Wake = carrel.Paused, at, at, wake
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime) // the write must not stop halfway
	defer cancel()
	if err := m.records.apply(ctx, state.Change{Put: []state.Record{rec}, PutSnapshots: put}); err != nil {
		m.records.takeBack(ctx, b, put)
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	st := b.rec.Sandbox.State
	b.rec = rec
	b.rec.Sandbox.State = st
	b.enrollLocked()
	return nil
}

// unpause lets a sandbox run on after its pause failed.
func (m *moments) unpause(b *box) {
	b.mu.Lock()
	inst := b.inst
	b.mu.Unlock()
	if err := thaw(m.table.ctx, b.id, inst); err != nil {
		m.log.Error("thaw sandbox", "sandbox", b.id, "err", err) // its end is seen by watch
	}
	b.setState(carrel.Pausing, carrel.Running)
}

// Waits between the attempts of thaw.
const (
	thawPause     = 5 * time.Millisecond // doubles
	longThawPause = time.Second
)

// thaw lets the programs of a sandbox run on. A sandbox that stays frozen looks like one that runs
// and answers nobody. So thaw tries again while this process lacks what a thaw takes, such as a
// descriptor. It gives up when the sandbox has ended, and when service is done.
func thaw(service context.Context, id carrel.ID, inst driver.Instance) error {
	f, ok := driver.As[driver.Freezer](inst)
	if !ok {
		return nil
	}
	for wait := thawPause; ; wait = min(2*wait, longThawPause) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(service), undoTime)
		err := f.Thaw(ctx)
		cancel()
		if !errors.Is(shortage.Explain("thaw sandbox", id, err), carrel.Exhausted) {
			return err
		}
		select {
		case <-time.After(wait):
		case <-service.Done():
			return err
		}
	}
}

// putAway ends the instance of a sandbox that is recorded as paused. If that fails, the service
// tries again before the sandbox resumes, and the next service at its start.
func (m *moments) putAway(b *box) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.table.ctx), endTime)
	defer cancel()
	b.mu.Lock()
	inst := b.inst
	conn := b.conn
	if b.rec.Sandbox.State == carrel.Stopping { // a kill did not wait for this pause
		b.mu.Unlock()
		return
	}
	b.inst, b.conn = nil, nil
	b.rec.Sandbox.State = carrel.Paused
	b.enrollLocked()
	b.samples.at = time.Time{} // from now on, another process is measured
	b.mu.Unlock()
	m.lifecycle.expiry.clear(b)
	m.table.leave(b)
	if conn != nil {
		_ = conn.Close()
	}
	if inst == nil {
		return
	}
	if err := inst.Destroy(ctx); err != nil {
		m.log.Error("destroy the instance of a paused sandbox", "sandbox", b.id, "err", err)
		b.mu.Lock()
		b.left = inst
		b.mu.Unlock()
		return
	}
	_ = failpoint.Hit(pointDestroyed)
	if err := os.RemoveAll(b.dir); err != nil {
		m.log.Error("remove sandbox's directory", "sandbox", b.id, "err", err)
	}
	m.table.spawn(func() { m.forgetHandle(b) })
}

// forgetHandle writes that a paused sandbox has no instance. So the next service need not look for
// one.
func (m *moments) forgetHandle(b *box) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.table.ctx), undoTime)
	defer cancel()
	b.save.Lock()
	defer b.save.Unlock()
	rec := b.record()
	if rec.Sandbox.State != carrel.Paused || rec.Handle == nil {
		return
	}
	rec.Handle = nil
	if err := m.opts.Store.PutSandbox(ctx, rec); err != nil {
		m.log.Debug("write record", "sandbox", b.id, "err", err)
		return
	}
	b.mu.Lock()
	b.rec.Handle = nil
	b.mu.Unlock()
}

// clearLeft ends an instance that could not be ended when its sandbox was paused.
func (b *box) clearLeft(ctx context.Context) error {
	b.mu.Lock()
	left := b.left
	b.mu.Unlock()
	if left == nil {
		return nil
	}
	if err := left.Destroy(ctx); err != nil {
		return fmt.Errorf("what was left of it when it was paused: %w", err)
	}
	b.mu.Lock()
	b.left = nil
	b.mu.Unlock()
	return os.RemoveAll(b.dir)
}
