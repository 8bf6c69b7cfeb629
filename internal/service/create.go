package service

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/cleanup"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/carrel-dev/carrel/internal/readiness"
	"github.com/carrel-dev/carrel/internal/service/golden"
	"github.com/carrel-dev/carrel/internal/service/timeline"
	"github.com/carrel-dev/carrel/internal/service/warm"
	"github.com/carrel-dev/carrel/internal/shortage"
	"github.com/carrel-dev/carrel/internal/snapshot"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/trace"
)

const opCreate = "create sandbox"

// undoTime bounds each step that undoes a failed creation.
const undoTime = 30 * time.Second

// plan is a checked request, with everything that a creation needs.
type plan struct {
	driver driver.Driver
	root   driver.Root
	rec    state.Record
	egress *policy.Policy // compiled from rec's network
	ttl    time.Duration
	from   *origin              // the snapshot to start from; nil for a template
	warm   *warm.One[*prepared] // the warm sandbox to adopt; nil for none
	told   bool                 // the warm sandbox's guest knows everything already
	golden string               // the key of the golden snapshot in rec.Born; "" for none
	unripe bool                 // that start is being made
	check  readiness.Check      // of that start
	cold   bool                 // it is not like other sandboxes of its template: adopts none
	owner  string               // the project of its template; "" for a built-in one and for a snapshot
	lent   bool                 // its image goes away with it
	half   bool                 // its image is still being filled
}

// boots reports whether the sandbox's first process has still to start, and with it the template's
// own command.
func (p *plan) boots() bool {
	if p.warm != nil {
		return p.warm.Sandbox.boots
	}
	return p.from.boots()
}

// start names the way in which the sandbox gets its first process.
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

// creator plans sandboxes and makes them.
type creator struct {
	opts      *Options
	log       *slog.Logger
	table     *table
	snaps     *timeline.Index
	rules     *rules
	journal   *journal
	roots     *roots
	records   *records
	templates *templates
	resolver  *resolver
	launcher  *launcher
	greeter   *greeter
	networks  *networks
	gates     *gates
	archive   *archive
	lifecycle *lifecycle
	ripener   *ripener
	warm      *warm.Pool[*prepared]
	goldens   *golden.Starts
	repeats   repeats
}

// Create implements carrel.Sandboxes.
func (cr *creator) Create(ctx context.Context, opts carrel.CreateOptions) (carrel.Sandbox, error) {
	if opts.IdempotencyKey == "" {
		return cr.create(ctx, opts, [sha256.Size]byte{})
	}
	return cr.repeats.once(ctx, opts, func(sum [sha256.Size]byte) (carrel.Sandbox, error) {
		return cr.create(ctx, opts, sum)
	})
}

// create makes a sandbox. sum belongs to the idempotency key.
func (cr *creator) create(ctx context.Context, opts carrel.CreateOptions,
	sum [sha256.Size]byte) (carrel.Sandbox, error) {
	if opts.Timeout == 0 && !opts.NoTimeout {
		opts.Timeout = cr.rules.lowerTimeout(ctx, cr.rules.lifetime(opts))
	}
	p, err := cr.plan(ctx, opts)
	if err != nil {
		return carrel.Sandbox{}, shortage.Explain(opCreate, "", err)
	}
	p.rec.Sandbox.Project, p.rec.Sandbox.Name = carrel.CallerOf(ctx).Project, opts.Name
	p.rec.Key, p.rec.KeySum = opts.IdempotencyKey, sum
	return cr.make(ctx, p)
}

// make makes the planned sandbox. It adopts a warm sandbox if there is one. If the adoption fails,
// make builds the same sandbox from nothing.
func (cr *creator) make(ctx context.Context, p *plan) (_ carrel.Sandbox, err error) {
	if p.from != nil {
		defer p.from.release() // follow has a share of its own
	}
	if !cr.table.hold() {
		return carrel.Sandbox{}, &carrel.Error{Op: opCreate, Kind: carrel.Unavailable, Err: errClosing}
	}
	defer cr.table.wg.Done()
	defer cr.warm.Working()()
	caller := carrel.CallerOf(ctx)
	p.rec.By = caller.Key
	if caller.Project == p.rec.Sandbox.Project {
		p.rec.KeyID = caller.KeyID
	}
	if err := cr.rules.mayMake(ctx, p.rec, p.ttl); err != nil {
		return carrel.Sandbox{}, err
	}
	if err := cr.table.roomFor(opCreate, p.rec, 1); err != nil {
		return carrel.Sandbox{}, err
	}
	if cr.takeWarm(p) {
		sb, again, err := cr.attempt(ctx, p)
		if !again {
			return sb, err
		}
		p.leaveWarm()
	}
	restored := cr.openGolden(ctx, p)
	if restored {
		defer p.from.release()
	}
	pass, err := cr.gates.enterCreate(ctx, p) // a warm sandbox costs too little to wait for a turn
	if err != nil {
		return carrel.Sandbox{}, err
	}
	defer func() { pass.Done(err) }() // after everything is undone
	if restored {
		sb, again, err := cr.attempt(ctx, p)
		if err == nil {
			cr.goldens.Worked(p.golden)
			return sb, nil
		}
		if again || ctx.Err() == nil && carrel.KindOf(err) == carrel.Unavailable { // not the caller's doing
			cr.spoilGolden(p, err)
		}
		if !again {
			return sb, err
		}
		p.leaveGolden()
	}
	sb, _, err := cr.attempt(ctx, p)
	if errors.Is(err, snapshot.ErrReplaced) { // the files are whole now
		p.from.verify = p.from.files.Verify
		sb, _, err = cr.attempt(ctx, p)
	}
	return sb, err
}

// attempt makes the planned sandbox in one way. again reports a failure that the request did not
// cause, so that another attempt is worth it.
func (cr *creator) attempt(ctx context.Context, p *plan) (_ carrel.Sandbox, again bool, err error) {
	ctx, span := cr.opts.Traces.Begin(ctx, "create", p.rec.Sandbox.ID)
	span.Set("start", p.start())
	defer func() { span.EndWith(err) }()
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	b, err := cr.table.reserve(p, abort)
	if err != nil {
		cr.returnWarm(p)
		return carrel.Sandbox{}, false, err
	}
	defer cr.table.wg.Done()
	ctx, cancel := context.WithTimeoutCause(ctx, cr.opts.StartTimeout,
		fmt.Errorf("the sandbox did not start within %v", cr.opts.StartTimeout))
	defer cancel()
	build := cr.build
	if p.warm != nil {
		build = cr.adoptWarm
	}
	if err := build(ctx, b, p); err != nil {
		again = ctx.Err() == nil
		err = cr.createError(ctx, b.id, err)
		cr.log.Warn("create sandbox", "sandbox", b.id, "err", err)
		return carrel.Sandbox{}, again, err
	}
	if p.boots() && len(p.rec.Start) > 0 {
		cr.table.spawn(func() { cr.greeter.startCommand(b, p.rec.Start) })
	}
	return b.public(), false, nil
}

// createError gives a failed creation's error its final form. If the context ended, its cause
// replaces the errors that followed from it.
func (cr *creator) createError(ctx context.Context, id carrel.ID, err error) error {
	out := &carrel.Error{Op: opCreate, ID: id, Kind: carrel.KindOf(err), Err: err}
	lacking(out)
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

// build makes the reserved sandbox, or undoes all of its steps.
func (cr *creator) build(ctx context.Context, b *box, p *plan) (err error) {
	var undo cleanup.Stack
	defer undo.Run()
	undo.Add(func() { cr.table.unreserve(b) })

	if err := os.Mkdir(b.dir, 0o700); err != nil {
		return fmt.Errorf("make the sandbox's directory: %w", err)
	}
	undo.Add(func() { _ = os.RemoveAll(b.dir) }) // the next service removes the rest
	if err := cr.records.putSandbox(ctx, p.rec); err != nil {
		return err
	}
	undo.Add(func() { cr.records.unrecord(b) })

	inst, line, err := cr.launcher.stand(ctx, b, p.driver, p.root, p.from)
	if err != nil {
		return p.from.blame(ctx, err)
	}
	undo.Add(func() { cr.launcher.destroy(b, inst) })
	undo.Add(line.hangUp)
	b.adopt(inst, line.conn(p.rec.Sandbox), p.ttl)
	if err := cr.networks.applyNetwork(opCreate, b); err != nil {
		return err
	}
	// The second write runs while the guest starts.
	rec := b.record()
	rec.Sandbox.State = carrel.Running
	written := cr.writeDown(ctx, rec, p, &undo)
	whole := make(chan error, 1)
	go func() { whole <- p.from.check(ctx) }()
	err = cr.greeter.greet(ctx, b, line)
	if err == nil && p.golden != "" {
		cr.greeter.settle(ctx, b, settleTime) // its server is up; requests reach it without the guest
	}
	err = first(<-whole, err, <-written, <-written)
	if err == nil {
		err = b.run(ctx)
	}
	if err != nil {
		return err
	}
	cr.lifecycle.expiry.set(b, rec.Sandbox.Ends)
	undo.Release()
	cr.lifecycle.follow(b, inst, p.from.share())
	return nil
}

// writeDown starts two writes at once: the record of a sandbox that is about to run, and the event
// of its creation. The caller waits for both results before it undoes anything.
func (cr *creator) writeDown(ctx context.Context, rec state.Record, p *plan, undo *cleanup.Stack) <-chan error {
	written := make(chan error, 2)
	go func() { written <- cr.records.putSandbox(ctx, rec) }()
	go func() {
		span := trace.Mark(ctx, "event")
		err := cr.journal.emit(ctx, createdEvent(rec, p.start()))
		span.EndWith(err)
		if err == nil {
			undo.Add(func() { cr.announceFailure(rec.Sandbox) })
		}
		written <- err
	}()
	return written
}

// adopt gives the box its instance and its times. The timeout starts to run here.
func (b *box) adopt(inst driver.Instance, conn *guest.Conn, ttl time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inst, b.conn = inst, conn
	b.use.met = false
	b.rec.Handle = inst.Handle()
	b.rec.Sandbox.Started = time.Now().UTC().Round(0)
	b.rec.Sandbox.Ends = b.rec.Sandbox.Started.Add(ttl)
	b.enrollLocked()
}

// run sets the sandbox's state to running, unless its creation was aborted before.
func (b *box) run(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	b.rec.Sandbox.State = carrel.Running
	b.enrollLocked()
	b.use.last = time.Now()
	close(b.up)
	return nil
}

// announceFailure emits the end event of a sandbox whose creation event was emitted already.
func (cr *creator) announceFailure(sb carrel.Sandbox) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cr.table.ctx), undoTime)
	defer cancel()
	if err := cr.journal.emit(ctx, endedEvent(sb, verdict{carrel.EndCrashed, "its creation failed"})); err != nil {
		cr.log.Error("write event", "sandbox", sb.ID, "err", err)
	}
}

// newToken returns a secret of 160 bits.
func newToken() string {
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the process instead
	return hex.EncodeToString(b[:])
}
