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

// endTime bounds what ends one sandbox: its caller's own context does not, for
// an end that began is finished.
const endTime = 30 * time.Second

// lifecycle ends sandboxes: on request, when their time is up, or because they ended by
// themselves.
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

// end ends a sandbox and returns when nothing of it is left. Several at once
// share one end; its reason is the first one's.
func (li *lifecycle) end(ctx context.Context, b *box, reason carrel.EndReason, message string) error {
	return li.endIf(ctx, b, verdict{reason, message}, nil)
}

// endIf is end on the condition that cond, asked at the moment of decision with
// box.mu held, still says so.
func (li *lifecycle) endIf(ctx context.Context, b *box, v verdict, cond func(carrel.Sandbox) bool) error {
	if !li.table.hold() {
		return &carrel.Error{Op: "end sandbox", Kind: carrel.Unavailable, ID: b.id, Err: errClosing}
	}
	defer li.table.wg.Done()
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
		case st == carrel.Pausing || st == carrel.Resuming: // it gives up, or is through in a moment
			b.mu.Unlock()
			b.interrupt(errKilled)
			if err := b.settled(ctx); err != nil {
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
			e.err = li.tearDown(ctx, b, v)
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

// tearDown removes a sandbox that endIf has marked. When the driver can't, the
// sandbox stays in the table, stopping, and is tried again.
func (li *lifecycle) tearDown(ctx context.Context, b *box, v verdict) error {
	b.mu.Lock()
	inst := b.inst
	b.mu.Unlock()
	err := b.clearLeft(ctx)
	if inst != nil {
		b.interrupt(errKilled) // a snapshot under way
		err = errors.Join(err, inst.Destroy(ctx))
	}
	if err != nil {
		b.mu.Lock()
		b.ending, b.failed = nil, &v
		b.mu.Unlock()
		li.records.remember(ctx, b) // so that a new service finishes it
		li.expiry.set(b, time.Now().Add(retryEnd))
		return &carrel.Error{Op: "destroy sandbox", Kind: carrel.KindOf(err), ID: b.id, Err: err,
			Hint: "it is tried again every few seconds"}
	}
	b.closeConn()
	li.forget(ctx, b, v, inst != nil)
	return nil
}

// forget removes what the service itself holds of a sandbox that is no more, and
// tells its end. What the store refuses costs no more than a second report of the
// end, by the next service. lived says that it had an instance.
func (li *lifecycle) forget(ctx context.Context, b *box, v verdict, lived bool) {
	rec := b.record()
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := os.RemoveAll(b.dir); err != nil {
			li.log.Error("remove sandbox's directory", "sandbox", b.id, "err", err)
		}
	})
	wg.Go(func() {
		if err := li.journal.emit(ctx, endedEvent(rec.Sandbox, v)); err != nil {
			li.log.Error("write event", "sandbox", b.id, "err", err)
		}
	})
	b.save.Lock()
	if err := li.opts.Store.DeleteSandbox(ctx, b.id); err != nil {
		li.log.Error("delete record", "sandbox", b.id, "err", err)
	}
	b.save.Unlock()
	wg.Go(func() { li.networks.revoke(ctx, rec.Sandbox) })
	wg.Wait()
	li.archive.dropOf(ctx, b.id)
	li.expiry.remove(b)
	li.table.remove(b, rec.Sandbox, v, lived)
	close(b.gone)
}

// watch ends a sandbox whose instance has ended by itself, and not because the
// sandbox was paused.
func (li *lifecycle) watch(b *box, inst driver.Instance) {
	exit, err := inst.Wait(li.table.ctx)
	if li.table.ctx.Err() != nil {
		return // it lives on, for the next service
	}
	_ = b.settled(li.table.ctx) // what has the turn may be the one who ended it
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

// follow watches a new instance, and lets go of the snapshot it was made from when
// all of it has been read.
func (li *lifecycle) follow(b *box, inst driver.Instance, from *origin) {
	li.table.spawn(func() { li.watch(b, inst) })
	li.launcher.letGo(b.id, inst, from)
}

// explain names the limit, its value and what to change, where a limit ended it.
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

// endings remembers how the last sandboxes ended, for those who still ask.
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

// Kill implements carrel.Sandboxes. Several at once all return when it has ended.
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
