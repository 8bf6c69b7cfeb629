package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/ceiling"
	"github.com/carrel-dev/carrel/internal/cleanup"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/failpoint"
	"github.com/carrel-dev/carrel/internal/snapshot"
	"github.com/carrel-dev/carrel/internal/trace"
)

const opResume = "resume sandbox"

// waking is a resumption under way. Other callers may join it.
type waking struct {
	done chan struct{}
	err  error // set before done is closed

	// Guarded by box.mu:
	cancel   context.CancelFunc
	admitted bool // it is past the gate
	waiters  int
}

// Resume implements carrel.Moments.
func (m *moments) Resume(ctx context.Context, id carrel.ID, o carrel.ResumeOptions) (carrel.Sandbox, bool, error) {
	return m.bringBack(ctx, id, comeback{ResumeOptions: o})
}

// comeback describes how a sandbox comes back.
type comeback struct {
	carrel.ResumeOptions
	// least is how much time the sandbox must have until its end, even if its last timeout was
	// shorter.
	least time.Duration
	// from is a snapshot that is already open. Nil means to open the one in the record.
	from *origin
	// admitted is called when the sandbox's turn has come. It may be nil.
	admitted func()
}

// bringBack resumes a sandbox, or extends the timeout of one that runs.
func (m *moments) bringBack(ctx context.Context, id carrel.ID, o comeback) (carrel.Sandbox, bool, error) {
	if err := m.rules.checkTimeout(opResume, o.Timeout); err != nil {
		return carrel.Sandbox{}, false, err
	}
	b, err := m.table.find(opResume, id)
	if err != nil {
		return carrel.Sandbox{}, false, err
	}
	if err := m.mayComeBack(ctx, b, o); err != nil {
		return carrel.Sandbox{}, false, err
	}
	resumed := false
	for {
		b.mu.Lock()
		st, w := b.rec.Sandbox.State, b.waking
		if st == carrel.Paused && w == nil {
			w = &waking{done: make(chan struct{})}
			var wctx context.Context
			wctx, w.cancel = context.WithCancel(trace.Carry(context.WithoutCancel(m.table.ctx), ctx))
			if !m.table.spawn(func() { m.wake(wctx, b, w, o) }) {
				b.mu.Unlock()
				w.cancel()
				return carrel.Sandbox{}, false, &carrel.Error{Op: opResume, Kind: carrel.Unavailable, ID: id, Err: errClosing}
			}
			b.waking = w
		}
		if w != nil {
			w.waiters++
		}
		b.mu.Unlock()
		switch {
		case st == carrel.Running:
			sb, err := m.extend(ctx, b, o.Timeout)
			if carrel.KindOf(err) == carrel.Conflict {
				continue // it was paused again just now
			}
			return sb, resumed, err
		case w != nil:
			if err := b.awaken(ctx, w); err != nil {
				return carrel.Sandbox{}, false, err
			}
			resumed = true
		case st == carrel.Pausing || st == carrel.Resuming: // a pause, or a rollback
			if err := b.settled(ctx); err != nil {
				return carrel.Sandbox{}, false, &carrel.Error{Op: opResume, Kind: carrel.TimedOut, ID: id, Err: err}
			}
		default:
			return carrel.Sandbox{}, false, b.running(opResume)
		}
	}
}

// mayComeBack says whether the ceilings and budgets of a sandbox, and those of the caller's key, allow
// what is asked for.
func (m *moments) mayComeBack(ctx context.Context, b *box, o comeback) error {
	rec := b.record()
	if rec.Sandbox.State == carrel.Running {
		return ceiling.Timeout(opResume, m.rules.bounds(ctx, rec.Sandbox.Project, rec.KeyID), o.Timeout)
	}
	return m.rules.mayWake(ctx, opResume, rec, cmp.Or(o.Timeout, rec.Timeout))
}

// awaken waits for the end of a resumption. A caller that stops waiting does not stop the
// resumption. The exception is the last waiting caller, before the resumption has its turn: then
// nobody needs it.
func (b *box) awaken(ctx context.Context, w *waking) error {
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.waiters--; w.waiters == 0 && !w.admitted {
		w.cancel()
		if b.waking == w { // who comes now begins another
			b.waking = nil
		}
	}
	return &carrel.Error{Op: opResume, Kind: carrel.TimedOut, ID: b.id, Err: context.Cause(ctx)}
}

// extend sets a later end for a running sandbox. It never sets an earlier one.
func (m *moments) extend(ctx context.Context, b *box, d time.Duration) (carrel.Sandbox, error) {
	if d == 0 {
		return b.public(), nil
	}
	return m.lifecycle.SetTimeout(ctx, b.id, d, true)
}

// wake brings a paused sandbox back for all waiting callers.
func (m *moments) wake(ctx context.Context, b *box, w *waking, o comeback) {
	defer w.cancel()
	o.admitted = func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		w.admitted = true
	}
	tctx, span := m.opts.Traces.Begin(ctx, "resume", b.id)
	ctx, release, err := m.table.take(tctx, opResume, b)
	if err == nil {
		if b.public().State == carrel.Paused {
			if err = m.resume(ctx, b, o); errors.Is(err, snapshot.ErrReplaced) {
				err = m.resume(ctx, b, o) // its files are whole now
			}
		}
		if err != nil {
			err = b.momentError(ctx, opResume, err)
		}
		release()
	}
	span.EndWith(err)
	if err != nil {
		m.log.Warn("resume sandbox", "sandbox", b.id, "err", err)
	}
	b.mu.Lock()
	if b.waking == w {
		b.waking = nil
	}
	b.mu.Unlock()
	w.err = err
	close(w.done)
}

// resume takes a paused sandbox to running, or leaves it paused. The caller holds box.turn.
func (m *moments) resume(ctx context.Context, b *box, o comeback) (err error) {
	ctx, pass, err := m.gates.enterWake(ctx, opResume, b)
	if err != nil {
		return err
	}
	defer func() { pass.Done(err) }()
	if o.admitted != nil {
		o.admitted()
	}
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, m.opts.StartTimeout, fmt.Errorf("the sandbox did not resume within %v", m.opts.StartTimeout))
	defer cancel()
	var undo cleanup.Stack
	defer undo.Run()
	if err := m.table.admit(opResume, b); err != nil {
		return err
	}
	undo.Add(func() { m.table.leave(b) })
	if !b.setState(carrel.Paused, carrel.Resuming) {
		return b.running(opResume)
	}
	undo.Add(func() { b.setState(carrel.Resuming, carrel.Paused) })
	if err := b.clearLeft(ctx); err != nil {
		return err
	}
	failed, err := m.tether.begin(ctx, b.id)
	if err != nil {
		return err
	}
	undo.Add(failed)
	rec := b.record()
	from := o.from.share()
	if from == nil {
		span := trace.Mark(ctx, "open snapshot")
		from, err = m.archive.open(ctx, rec.Paused, o.FilesOnly, false)
		span.EndWith(err)
		if err != nil {
			return err
		}
		from.sameBoot = true // it goes on; a rollback does not
	}
	undo.Add(from.release)
	if err := failpoint.Hit(pointOpened); err != nil {
		return err
	}
	drv, root, err := m.launcher.home(ctx, rec, from.info.Root)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return fmt.Errorf("make the sandbox's directory: %w", err)
	}
	undo.Add(func() { _ = os.RemoveAll(b.dir) })
	inst, line, err := m.launcher.stand(ctx, b, drv, root, from)
	if err != nil {
		return from.blame(ctx, err)
	}
	undo.Add(func() { m.launcher.destroy(b, inst) })
	undo.Add(line.hangUp)
	b.mu.Lock()
	b.inst, b.conn = inst, line.conn(rec.Sandbox)
	b.use.met = false
	b.rec.Sandbox.Generation++
	b.mu.Unlock()
	undo.Add(b.disown)
	if err := m.settleIn(ctx, b, line, from); err != nil {
		return err
	}
	if line.pour {
		if err := m.pour(ctx, b, from); err != nil {
			return err
		}
	}
	if err := m.recordRunning(ctx, b, inst, o); err != nil {
		return err
	}
	undo.Release()
	_ = failpoint.Hit(pointResumed)
	m.lifecycle.follow(b, inst, from)
	if from.boots() && len(rec.Start) > 0 {
		m.table.spawn(func() { m.greeter.startCommand(b, rec.Start) })
	}
	took := time.Since(began).Round(time.Millisecond)
	m.table.spawn(func() {
		m.journal.tell(carrel.Event{Type: eventResumed, ID: b.id, Message: fmt.Sprintf("resumed from snapshot %s in %v", from.id, took),
			Fields: map[string]string{"snapshot": string(from.id)}})
	})
	return nil
}

// disown removes the instance of a failed resumption from the box.
func (b *box) disown() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil {
		_ = b.conn.Close()
	}
	b.inst, b.conn = nil, nil
	b.rec.Sandbox.Generation--
}

// settleIn applies the rules of a new instance, gives its guest the identity, and waits for the
// verification of its snapshot. The resumption continues only after all of that.
func (m *moments) settleIn(ctx context.Context, b *box, line *line, from *origin) error {
	if err := failpoint.Hit(pointRestored); err != nil {
		return err
	}
	checked := make(chan error, 1)
	go func() {
		span := trace.Mark(ctx, "check content")
		err := from.check(ctx)
		span.EndWith(err)
		checked <- err
	}()
	err := m.networks.applyNetwork(opResume, b)
	if err == nil {
		err = m.greeter.greet(ctx, b, line)
	}
	if verr := <-checked; verr != nil {
		return verr // damage explains every other error
	}
	if err != nil {
		return err
	}
	return failpoint.Hit(pointGreeted)
}

// recordRunning writes that a sandbox runs again.
func (m *moments) recordRunning(ctx context.Context, b *box, inst driver.Instance, o comeback) error {
	b.save.Lock()
	defer b.save.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	rec := b.record()
	if o.Timeout > 0 {
		rec.Timeout = o.Timeout
	}
	ttl := rec.Timeout
	if ttl <= 0 {
		ttl = m.opts.DefaultTimeout
	}
	ttl = max(ttl, min(o.least, m.opts.MaxTimeout))
	ends := time.Now().Add(ttl).UTC().Round(0)
	if rec.Wake && rec.Sandbox.Ends.After(time.Now()) {
		ends = rec.Sandbox.Ends // a rollback keeps the end time
	}
	rec.Sandbox.State, rec.Sandbox.Ends = carrel.Running, ends
	rec.Sandbox.Snapshot = rec.Paused
	rec.Paused, rec.Wake, rec.Sound, rec.Handle = "", false, false, inst.Handle()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime) // the write must not stop halfway
	defer cancel()
	if err := m.records.putSandbox(ctx, rec); err != nil {
		m.records.takeBack(ctx, b, nil)
		return err
	}
	b.mu.Lock()
	if b.rec.Sandbox.State == carrel.Stopping { // a kill did not wait for this resumption
		b.mu.Unlock()
		return errKilled
	}
	b.rec = rec
	b.enrollLocked()
	b.use.last = time.Now()
	b.mu.Unlock()
	m.lifecycle.expiry.set(b, ends)
	return nil
}
