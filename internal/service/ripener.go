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
	"github.com/carrel-dev/carrel/internal/admission"
	"github.com/carrel-dev/carrel/internal/cleanup"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/carrel-dev/carrel/internal/readiness"
	"github.com/carrel-dev/carrel/internal/service/golden"
	"github.com/carrel-dev/carrel/internal/service/timeline"
	"github.com/carrel-dev/carrel/internal/service/warm"
	"github.com/carrel-dev/carrel/internal/state"
)

// ripener starts each template's start command once and keeps that moment as a snapshot. Where boots
// are slow, it does so with templates that have no start command. It also finds the snapshots that earlier services made in this way.
type ripener struct {
	opts     *Options
	log      *slog.Logger
	table    *table
	snaps    *timeline.Index
	journal  *journal
	roots    *roots
	records  *records
	launcher *launcher
	greeter  *greeter
	gates    *gates
	archive  *archive
	nursery  *nursery
	resolver *resolver
	warm     *warm.Pool[*prepared]
	goldens  *golden.Starts
}

var _ golden.Host = (*ripener)(nil)

// start makes a template's own start. like is a plan for a sandbox of the template.
func (r *ripener) start(ctx context.Context, key string, img image.Image, like *plan) (id carrel.SnapshotID, took time.Duration, err error) {
	began := time.Now()
	pass, err := r.awaitSpare(ctx, like.rec.Sandbox)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, 2*r.opts.StartTimeout+r.check(img).Within)
		defer cancel()
		began = time.Now()
		id, err = r.ripen(ctx, key, img, like, pass)
	}
	return id, time.Since(began), err
}

// ripen makes a sandbox that belongs to nobody, waits until it is ready, takes its snapshot and
// ends it. pass is its turn, which ends when it has booted.
func (r *ripener) ripen(ctx context.Context, key string, img image.Image, like *plan, pass *admission.Pass) (_ carrel.SnapshotID, err error) {
	defer func() { pass.Done(err) }()
	rec := like.rec
	rec.Sandbox.ID, rec.Sandbox.State, rec.Sandbox.AccessToken = carrel.NewID(), state.Warm, newToken()
	rec.Sandbox.Metadata, rec.Sandbox.Tokens, rec.Sandbox.Network, rec.Sandbox.TrafficToken = nil, nil, carrel.Network{}, ""
	rec.Sandbox.Lifecycle, rec.Env, rec.Sandbox.Project = carrel.Lifecycle{}, img.Env, ""
	b := r.table.newBox(rec, &policy.Policy{}, func(error) {})
	var undo cleanup.Stack
	defer undo.Run()
	if err := os.Mkdir(b.dir, 0o700); err != nil {
		return "", fmt.Errorf("make the sandbox's directory: %w", err)
	}
	undo.Add(func() { _ = os.RemoveAll(b.dir) })
	if err := r.nursery.record(ctx, b); err != nil {
		return "", err
	}
	undo.Add(func() { r.records.unrecord(b) })
	inst, line, err := r.launcher.stand(ctx, b, like.driver, like.root, nil)
	if err != nil {
		return "", err
	}
	undo.Add(func() { r.launcher.destroy(b, inst) })
	undo.Add(line.hangUp)
	conn := line.conn(rec.Sandbox)
	b.adopt(inst, conn, like.ttl)
	undo.Add(func() { _ = conn.Close() })
	if err := r.nursery.record(ctx, b); err != nil {
		return "", err
	}
	if err := r.greeter.greet(ctx, b, line); err != nil {
		return "", err
	}
	pass.Done(nil) // from here it waits only for its own start command
	if len(img.Start) > 0 {
		if err := r.awaitReady(ctx, b, conn, inst, img); err != nil {
			return "", err
		}
	}
	_ = r.greeter.touch(ctx, conn, touches) // the snapshot then holds what a first command needs
	return r.keep(ctx, key, b, inst)
}

// awaitSpare waits until the machine has processor time and memory to start a template, or until
// ctx ends.
func (r *ripener) awaitSpare(ctx context.Context, sb carrel.Sandbox) (*admission.Pass, error) {
	for {
		pass, err := r.gates.enterSpare(ctx, sb, "template")
		if !errors.Is(err, admission.ErrBusy) || ctx.Err() != nil {
			return pass, err
		}
	}
}

// check is how a template's ready command is tried.
func (r *ripener) check(img image.Image) readiness.Check {
	return readiness.Of(img.Template, r.opts.ReadyTimeout)
}

// awaitReady runs the start command, and then the ready command until it succeeds. It ends early
// when the sandbox does.
func (r *ripener) awaitReady(ctx context.Context, b *box, conn *guest.Conn,
	inst driver.Instance, img image.Image) error {
	ctx, end := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer end(nil)
	stop, err := readiness.Begin(ctx, conn, carrel.Command{Args: img.Start, Tag: startTag}, end)
	if err != nil {
		return fmt.Errorf("its start command %q could not be started: %w", img.Start, err)
	}
	defer stop()
	watch.Go(func() {
		exit, err := inst.Wait(ctx)
		if ctx.Err() == nil && err == nil {
			end(&carrel.Error{Kind: carrel.Exhausted, Field: "start",
				Err: fmt.Errorf("its sandbox ended while its start command %q ran: %s", img.Start,
					explain(b.public().Limits, verdict{exit.Reason, exit.Message}))})
		}
	})
	return r.check(img).Await(ctx, conn.Run)
}

// keep takes the snapshot of a sandbox that is ready.
func (r *ripener) keep(ctx context.Context, key string, b *box, inst driver.Instance) (carrel.SnapshotID, error) {
	r.greeter.settle(ctx, b, leaveTime)
	r.greeter.leave(ctx, b, "the template is ready")
	if f, ok := driver.As[driver.Freezer](inst); ok {
		if err := f.Freeze(ctx); err != nil {
			return "", err
		}
	}
	b.mu.Lock()
	b.rec.Sandbox.AccessToken, b.rec.Env = "", nil
	b.mu.Unlock()
	sr, err := r.archive.keep(ctx, b, wish{cause: carrel.CauseTemplate, detail: key})
	if err != nil {
		return "", err
	}
	sr.Snapshot.Kept = true
	if !sr.Snapshot.Memory {
		r.archive.scrap(sr.Snapshot.ID)
		return "", errors.New("its moment could be kept without memory only")
	}
	if err := r.records.apply(ctx, state.Change{PutSnapshots: []state.SnapshotRecord{sr}}); err != nil {
		r.archive.scrap(sr.Snapshot.ID)
		return "", err
	}
	return sr.Snapshot.ID, nil
}
