package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
)

// endTime bounds the end of one sandbox. The caller's context does not stop it, because an end that
// has begun is always finished.
const endTime = 30 * time.Second

// lifecycle ends sandboxes: on request, when their time is up, or after they stopped by themselves.
type lifecycle struct {
	opts     *Options
	log      *slog.Logger
	table    *table
	rules    *rules
	journal  *journal
	records  *records
	launcher *launcher
	greeter  *greeter
	networks *networks
	archive  *archive
	moments  *moments
	expiry   expiry
}

// end ends a sandbox and returns when everything of it is removed. Several calls at once share one
// end, with the reason of the first call.
func (li *lifecycle) end(ctx context.Context, b *box, reason carrel.EndReason, message string) error {
	return li.endIf(ctx, b, verdict{reason, message}, nil)
}

// endIf ends a sandbox only if cond agrees. It calls cond with box.mu held when it decides. An
// operation that does not give up in time loses its instance: its result no longer counts.
func (li *lifecycle) endIf(ctx context.Context, b *box, v verdict, cond func(carrel.Sandbox) bool) error {
	if !li.table.hold() {
		return &carrel.Error{Op: "end sandbox", Kind: carrel.Unavailable, ID: b.id, Err: errClosing}
	}
	defer li.table.wg.Done()
	hung, err := false, error(nil) // the operation under way does not give up
	for {
		b.mu.Lock()
		st, e := b.rec.Sandbox.State, b.ending
		switch {
		case e != nil:
			b.mu.Unlock()
			select {
			case <-e.done:
				return e.err
			case <-ctx.Done():
				return &carrel.Error{Op: "end sandbox", Kind: carrel.TimedOut, ID: b.id, Err: context.Cause(ctx)}
			}
		case st == carrel.Starting || b.undoing: // its creation undoes itself
			b.mu.Unlock()
			b.abort(errKilled)
			select {
			case <-b.gone:
				return nil
			case <-b.up: // too late for that
			case <-ctx.Done():
				return &carrel.Error{Op: "end sandbox", Kind: carrel.TimedOut, ID: b.id, Err: context.Cause(ctx)}
			}
		case !hung && (st == carrel.Pausing || st == carrel.Resuming): // it gives up, or finishes soon
			b.mu.Unlock()
			b.interrupt(errKilled)
			if hung, err = b.hangs(ctx); err != nil {
				return &carrel.Error{Op: "end sandbox", Kind: carrel.TimedOut, ID: b.id, Err: err}
			}
		case cond != nil && !cond(b.rec.Sandbox):
			b.mu.Unlock()
			return nil
		case isClosed(b.gone):
			b.mu.Unlock()
			return nil
		default:
			e = &ending{done: make(chan struct{})}
			b.ending, b.rec.Sandbox.State = e, carrel.Stopping
			b.enrollLocked()
			b.mu.Unlock()
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
			defer cancel()
			// A resumption that hangs counts its instance itself.
			e.err = li.tearDown(ctx, b, v, st != carrel.Resuming)
			close(e.done)
			return e.err
		}
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// tearDown removes a sandbox that endIf has marked. When the driver fails, or the record can't be
// deleted, the sandbox stays in the table as stopping, and the service tries again: an end that is
// acknowledged must be durable, or a paused sandbox would be there again after a restart. counts
// says that the table counts the sandbox as living because of its instance.
func (li *lifecycle) tearDown(ctx context.Context, b *box, v verdict, counts bool) error {
	b.mu.Lock()
	inst, release := b.inst, b.release
	b.mu.Unlock()
	err := b.clearLeft(ctx)
	if inst != nil {
		b.interrupt(errKilled) // a snapshot under way
		li.opts.measureLast(ctx, b.id, inst)
		err = errors.Join(err, inst.Destroy(ctx))
	}
	if err == nil && release != nil {
		err = release.before(ctx)
	}
	if err == nil {
		b.save.Lock()
		err = li.opts.Store.DeleteSandbox(ctx, b.id)
		b.save.Unlock()
	}
	if err != nil {
		b.mu.Lock()
		b.ending, b.failed = nil, &v
		b.mu.Unlock()
		li.records.remember(ctx, b) // a new service then finishes it
		li.expiry.set(b, time.Now().Add(retryEnd))
		return &carrel.Error{Op: "destroy sandbox", Kind: carrel.KindOf(err), ID: b.id, Err: err,
			Hint: "it is tried again every few seconds"}
	}
	b.closeConn()
	li.forget(ctx, b, v, counts && inst != nil)
	return nil
}

// forget removes the service's own data of an ended sandbox, whose record is deleted, and emits the
// event of its end. lived says that the sandbox had an instance.
func (li *lifecycle) forget(ctx context.Context, b *box, v verdict, lived bool) {
	rec := b.record()
	b.mu.Lock()
	release := b.release
	b.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := os.RemoveAll(b.dir); err != nil {
			li.log.Error("remove sandbox's directory", "sandbox", b.id, "err", err)
		}
	})
	wg.Go(func() {
		told := endedEvent(rec.Sandbox, v)
		if release != nil {
			told = releasedEvent(rec.Sandbox)
		}
		if err := li.journal.emit(ctx, told); err != nil {
			li.log.Error("write event", "sandbox", b.id, "err", err)
		}
	})
	wg.Go(func() { li.networks.revoke(ctx, rec.Sandbox) })
	wg.Go(func() { li.clearGroups(ctx, rec.Sandbox) })
	wg.Wait()
	if release != nil {
		release.after(ctx)
	} else {
		li.archive.dropOf(ctx, b.id)
	}
	li.expiry.remove(b)
	li.table.remove(b, rec.Sandbox, v, lived)
	li.networks.inbox.Forget(b.id)
	close(b.gone)
}

// clearGroups removes control groups that no handle of an ended sandbox named.
func (li *lifecycle) clearGroups(ctx context.Context, sb carrel.Sandbox) {
	drv, err := li.opts.Drivers.Get(sb.Tier)
	if err != nil {
		return
	}
	if c, ok := driver.As[driver.GroupClearer](drv); ok {
		if err := c.ClearGroups(ctx, sb.ID); err != nil {
			li.log.Warn("a control group of an ended sandbox stays", "sandbox", sb.ID, "err", err)
		}
	}
}

// watch ends a sandbox whose instance stopped by itself. A pause also stops the instance, but does
// not end the sandbox.
func (li *lifecycle) watch(b *box, inst driver.Instance) {
	exit, err := inst.Wait(li.table.ctx)
	if li.table.ctx.Err() != nil {
		return // the sandbox lives on for the next service
	}
	_ = b.settled(li.table.ctx) // the operation that holds turn may have ended it
	b.mu.Lock()
	current := b.inst == inst
	b.mu.Unlock()
	if !current {
		return
	}
	v := verdict{exit.Reason, exit.Message}
	if err != nil {
		v = verdict{carrel.EndCrashed, "its driver lost it: " + err.Error()}
	}
	v.message = explain(b.public().Limits, v)
	if v.reason != carrel.EndKilled {
		li.log.Warn("sandbox ended by itself", "sandbox", b.id, "reason", v.reason, "message", v.message)
	}
	if err := li.end(context.WithoutCancel(li.table.ctx), b, v.reason, v.message); err != nil {
		li.log.Error("end sandbox", "sandbox", b.id, "err", err)
	}
}

// follow watches a new instance. It releases the snapshot that the instance was made from when all
// of it has been read.
func (li *lifecycle) follow(b *box, inst driver.Instance, from *origin) {
	li.table.spawn(func() { li.watch(b, inst) })
	li.launcher.letGo(b.id, inst, from)
}

// explain says which limit ended a sandbox, its value, and how to avoid that.
func explain(l carrel.Limits, v verdict) string {
	switch {
	case v.reason == carrel.EndOutOfMemory:
		text := fmt.Sprintf("out of memory: it needed more than its limit of %d MiB: create it with a higher memoryMB, or use less", l.MemoryMB)
		if v.message != "" {
			text += " (" + v.message + ")"
		}
		return text
	case v.message == "":
		return string(v.reason)
	}
	return v.message
}

// endings remembers how the last sandboxes ended, for later requests about them.
type endings struct {
	byID  map[carrel.ID]verdictAt
	order []carrel.ID // oldest first
}

type verdictAt struct {
	verdict
	project string // whose sandbox it was
	at      time.Time
}

// Bounds of endings.
const (
	endingsKept = 4096
	endingsFor  = time.Hour
)

func (e *endings) add(id carrel.ID, project string, v verdict) {
	if e.byID == nil {
		e.byID = map[carrel.ID]verdictAt{}
	}
	e.byID[id] = verdictAt{v, project, time.Now()}
	e.order = append(e.order, id)
	for len(e.order) > endingsKept || time.Since(e.byID[e.order[0]].at) > endingsFor {
		delete(e.byID, e.order[0])
		e.order = e.order[1:]
	}
}

func (e *endings) get(id carrel.ID) (verdictAt, bool) {
	v, ok := e.byID[id]
	return v, ok
}

// Kill implements carrel.Sandboxes. Several calls at once all return when the sandbox has ended.
func (li *lifecycle) Kill(ctx context.Context, id carrel.ID) error {
	b, err := li.table.find("kill sandbox", id)
	if err != nil {
		return err
	}
	return li.end(ctx, b, carrel.EndKilled, "killed on request")
}

// endAll kills sandboxes, all at once.
func (li *lifecycle) endAll(all []*box) error {
	var wg sync.WaitGroup
	errs := make([]error, len(all))
	for i, b := range all {
		wg.Go(func() {
			errs[i] = li.end(context.Background(), b, carrel.EndKilled, "the service was closed")
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
