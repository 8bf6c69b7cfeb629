package service

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/admission"
	"github.com/carrel-dev/carrel/internal/cleanup"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/trace"
)

const opCreate = "create sandbox"

// undoTime bounds the undoing of one step of a creation that failed.
const undoTime = 30 * time.Second

// plan is a checked request: all that a creation needs to know.
type plan struct {
	driver driver.Driver
	root   driver.Root
	rec    state.Record
	ttl    time.Duration
	from   *origin // the snapshot it is made from; nil for a template
	warm   *warm   // what was made ahead for it; nil for nothing
	told   bool    // whose guest knows already all that it needs to
	golden string  // the key of the template's own start, where rec.Born is that; "" for none
	unripe bool    // that start is being made
}

// boots reports whether its first process is yet to start, and with it the template's
// own command.
func (p *plan) boots() bool {
	if p.warm != nil {
		return p.warm.boots
	}
	return p.from.boots()
}

// start says how it gets its first process.
func (p *plan) start() string {
	switch {
	case p.warm != nil:
		return startWarm
	case p.golden != "":
		return startGolden
	case p.from != nil:
		return startSnapshot
	}
	return startCold
}

// Create implements carrel.Sandboxes.
func (s *Service) Create(ctx context.Context, opts carrel.CreateOptions) (carrel.Sandbox, error) {
	p, err := s.plan(ctx, opts)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	if t := admission.TenantOf(ctx); t != "" {
		p.rec.Owner = t
	}
	return s.make(ctx, p)
}

// make makes the planned sandbox, from one that is ready where there is one. What breaks
// in that is no reason to fail: the same is then made from nothing.
func (s *Service) make(ctx context.Context, p *plan) (_ carrel.Sandbox, err error) {
	if p.from != nil {
		defer p.from.release() // follow has a share of its own
	}
	if !s.hold() {
		return carrel.Sandbox{}, &carrel.Error{Op: opCreate, Kind: carrel.Unavailable, Err: errClosing}
	}
	defer s.wg.Done()
	defer s.warm.working()()
	if s.takeWarm(p) {
		sb, again, err := s.attempt(ctx, p)
		if !again {
			return sb, err
		}
		p.leaveWarm()
	}
	restored := s.openGolden(ctx, p)
	if restored {
		defer p.from.release()
	}
	pass, err := s.enterCreate(ctx, p) // one that is ready costs too little to wait for a turn
	if err != nil {
		return carrel.Sandbox{}, err
	}
	defer func() { pass.Done(err) }() // what has to be undone is done by then
	if restored {
		sb, again, err := s.attempt(ctx, p)
		if err == nil {
			s.goldens.worked(p.golden)
			return sb, nil
		}
		if again || ctx.Err() == nil && carrel.KindOf(err) == carrel.Unavailable { // not the caller's doing
			s.spoilGolden(p, err)
		}
		if !again {
			return sb, err
		}
		p.leaveGolden()
	}
	sb, _, err := s.attempt(ctx, p)
	return sb, err
}

// attempt makes the planned sandbox in one way. again says that it failed through no
// fault of the request.
func (s *Service) attempt(ctx context.Context, p *plan) (_ carrel.Sandbox, again bool, err error) {
	ctx, span := s.opts.Traces.Begin(ctx, "create", p.rec.Sandbox.ID)
	span.Set("start", p.start())
	defer func() { span.EndWith(err) }()
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	b, err := s.reserve(p, abort)
	if err != nil {
		s.returnWarm(p)
		return carrel.Sandbox{}, false, err
	}
	defer s.wg.Done()
	ctx, cancel := context.WithTimeoutCause(ctx, s.opts.StartTimeout,
		fmt.Errorf("the sandbox did not start within %v", s.opts.StartTimeout))
	defer cancel()
	build := s.build
	if p.warm != nil {
		build = s.adoptWarm
	}
	if err := build(ctx, b, p); err != nil {
		again = ctx.Err() == nil
		err = s.createError(ctx, b.id, err)
		s.log.Warn("create sandbox", "sandbox", b.id, "err", err)
		return carrel.Sandbox{}, again, err
	}
	if p.boots() && len(p.rec.Start) > 0 {
		s.spawn(func() { s.startCommand(b, p.rec.Start) })
	}
	return b.public(), false, nil
}

// createError gives a failed creation its final form: the reason that ended its
// context comes before what that broke.
func (s *Service) createError(ctx context.Context, id carrel.ID, err error) error {
	out := &carrel.Error{Op: opCreate, ID: id, Kind: carrel.KindOf(err), Err: err}
	if diskFull(err) {
		out.Kind, out.Hint = carrel.Exhausted, hintDisk
	}
	cause := context.Cause(ctx)
	switch {
	case cause == nil:
	case errors.Is(cause, errKilled):
		out.Kind, out.Err = carrel.Conflict, cause
	case errors.Is(cause, errClosing):
		out.Kind, out.Err = carrel.Unavailable, cause
	case errors.Is(cause, context.Canceled):
		out.Kind, out.Err = carrel.Unavailable, cause
	case errors.Is(cause, context.DeadlineExceeded):
		out.Kind, out.Err = carrel.TimedOut, cause
	default: // StartTimeout
		out.Kind, out.Err = carrel.Unavailable, fmt.Errorf("%w: %v", cause, err)
		out.Hint = "the machine may be overloaded: try again, or see the daemon's log"
	}
	return out
}

// reserve takes a place for a new sandbox. The check and the taking are one step,
// so parallel creations never exceed the quota. On success s.wg counts it.
func (s *Service) reserve(p *plan, abort context.CancelCauseFunc) (*box, error) {
	id := p.rec.Sandbox.ID
	b := s.newBox(p.rec, abort)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return nil, &carrel.Error{Op: opCreate, Kind: carrel.Unavailable, Err: errClosing}
	}
	if most := s.opts.MaxSandboxes; most > 0 && s.live >= most {
		return nil, s.errFull(opCreate)
	}
	s.boxes[id] = b
	s.live++
	s.wg.Add(1)
	return b, nil
}

// build makes the reserved sandbox real, or undoes all of it.
func (s *Service) build(ctx context.Context, b *box, p *plan) (err error) {
	var undo cleanup.Stack
	defer undo.Run()
	undo.Add(func() { s.unreserve(b) })

	if err := os.Mkdir(b.dir, 0o700); err != nil {
		return fmt.Errorf("make the sandbox's directory: %w", err)
	}
	undo.Add(func() { _ = os.RemoveAll(b.dir) }) // what is left goes at the next start
	if err := s.putSandbox(ctx, p.rec); err != nil {
		return err
	}
	undo.Add(func() { s.unrecord(b) })

	inst, line, err := s.stand(ctx, b, p.driver, p.root, p.from)
	if err != nil {
		return err
	}
	undo.Add(func() { s.destroy(b, inst) })
	undo.Add(line.hangUp)
	b.adopt(inst, line.conn(p.rec.Sandbox), p.ttl)
	if err := s.applyNetwork(opCreate, b); err != nil {
		return err
	}
	// The second write goes to the disk while the guest is on its way up.
	rec := b.record()
	rec.Sandbox.State = carrel.Running
	written := s.writeDown(ctx, rec, p, &undo)
	whole := make(chan error, 1)
	go func() { whole <- p.from.check(ctx) }()
	err = s.greet(ctx, b, line)
	if err == nil && p.golden != "" {
		s.settle(ctx, b, settleTime) // its server is up already, and whoever asks that asks past the guest
	}
	err = first(<-whole, err, <-written, <-written)
	if err == nil {
		err = b.run(ctx)
	}
	if err != nil {
		return err
	}
	s.expiry.set(b, rec.Sandbox.Ends)
	undo.Release()
	s.follow(b, inst, p.from.share())
	return nil
}

// putSandbox writes a record as a part of an operation.
func (s *Service) putSandbox(ctx context.Context, rec state.Record) error {
	span := trace.Mark(ctx, "record")
	err := s.opts.Store.PutSandbox(ctx, rec)
	span.EndWith(err)
	return err
}

// writeDown writes the record of a sandbox that is about to run and the event of its creation, at once. The caller
// waits for both results before it undoes anything.
func (s *Service) writeDown(ctx context.Context, rec state.Record, p *plan, undo *cleanup.Stack) <-chan error {
	written := make(chan error, 2)
	go func() { written <- s.putSandbox(ctx, rec) }()
	go func() {
		span := trace.Mark(ctx, "event")
		err := s.emit(ctx, createdEvent(rec.Sandbox, p.start()))
		span.EndWith(err)
		if err == nil {
			undo.Add(func() { s.announceFailure(rec.Sandbox) })
		}
		written <- err
	}()
	return written
}

// adopt gives the box its instance and its times: the timeout counts from here.
func (b *box) adopt(inst driver.Instance, conn *guest.Conn, ttl time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inst, b.conn = inst, conn
	b.use.met = false
	b.rec.Handle = inst.Handle()
	b.rec.Sandbox.Started = time.Now().UTC().Round(0)
	b.rec.Sandbox.Ends = b.rec.Sandbox.Started.Add(ttl)
}

// run makes the sandbox running, unless its creation was aborted before.
func (b *box) run(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	b.rec.Sandbox.State = carrel.Running
	b.use.last = time.Now()
	close(b.up)
	return nil
}

// unreserve gives the place back.
func (s *Service) unreserve(b *box) {
	s.mu.Lock()
	delete(s.boxes, b.id)
	s.live--
	s.mu.Unlock()
	close(b.gone)
}

// unrecord deletes the record of a creation that failed, unless a later step
// could not be undone and needs it.
func (s *Service) unrecord(b *box) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), undoTime)
	defer cancel()
	b.mu.Lock()
	stuck := b.failed != nil
	b.undoing, b.rec.Sandbox.State = true, carrel.Stopping
	b.mu.Unlock()
	if stuck {
		s.remember(ctx, b) // the next service finishes it
		return
	}
	if err := s.opts.Store.DeleteSandbox(ctx, b.id); err != nil {
		s.log.Error("delete record", "sandbox", b.id, "err", err)
	}
}

// destroy undoes a driver's Create or Restore.
func (s *Service) destroy(b *box, inst driver.Instance) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), undoTime)
	defer cancel()
	if err := inst.Destroy(ctx); err != nil {
		s.log.Error("destroy sandbox", "sandbox", b.id, "err", err)
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.rec.Sandbox.State == carrel.Resuming {
			b.left = inst // tried again before the next resumption
			return
		}
		b.failed = &verdict{carrel.EndCrashed, "its creation failed"}
	}
}

// announceFailure tells the end of a sandbox whose start was told already.
func (s *Service) announceFailure(sb carrel.Sandbox) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), undoTime)
	defer cancel()
	if err := s.emit(ctx, endedEvent(sb, verdict{carrel.EndCrashed, "its creation failed"})); err != nil {
		s.log.Error("write event", "sandbox", sb.ID, "err", err)
	}
}

// newToken returns a secret of 160 bits.
func newToken() string {
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the process instead
	return hex.EncodeToString(b[:])
}
