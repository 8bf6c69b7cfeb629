package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/cleanup"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/pool"
	"github.com/carrel-dev/carrel/internal/service/warm"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/trace"
)

// prepared is a sandbox that was made ahead, as the service knows it.
type prepared struct {
	box    *box // not in the service's table: its record has state.Warm
	line   *line
	boots  bool               // its first process was started, and not restored
	told   *guest.InitRequest // all that its guest was told of itself; nil is not known
	driver driver.Driver
}

// WarmOptions says what is kept ready. The zero value keeps nothing.
type WarmOptions = warm.Options

// WarmFloor is one kind and how many of it are ready at least.
type WarmFloor = warm.Floor

// keyOf is the kind of sandbox that a plan makes; ok is false for one that is not kept
// ready: made from a moment, or so quick to make that it would be pointless.
func (cr *creator) keyOf(p *plan) (key pool.Key, ok bool) {
	if !cr.warm.IsOn() || p.from != nil || !p.driver.Info().Capabilities.RealProcesses {
		return "", false
	}
	return keyOfRecord(p.rec, filepath.Base(cr.opts.GuestImage)), true
}

// keyOfRecord is the kind of a sandbox by its record: all that can't be changed any more
// once it runs. An image that was replaced has another root (keepRoot).
func keyOfRecord(r state.Record, guestImage string) pool.Key {
	sb, l := r.Sandbox, r.Sandbox.Limits
	return pool.Key(fmt.Sprintf("%s %s %s %s %g/%d/%d/%d %s", sb.Tier, sb.Template, r.Root, guestImage,
		l.CPUs, l.MemoryMB, l.DiskMB, l.Pids, r.Born))
}

// kindOf is what it takes to make more like what a plan makes.
func kindOf(p *plan) warm.Kind {
	sb := p.rec.Sandbox
	k := warm.Kind{Template: sb.Alias, Project: p.owner, Tier: sb.Tier, Limits: sb.Limits, Golden: p.golden != ""}
	if k.Template == "" {
		k.Template = sb.Template
	}
	return k
}

// takeWarm gives a plan a sandbox that is ready, and reports whether there was one. The pool
// notes what was asked for either way.
func (cr *creator) takeWarm(p *plan) bool {
	key, ok := cr.keyOf(p)
	if !ok {
		return false
	}
	if p.warm = cr.warm.Take(key, kindOf(p)); p.warm == nil {
		return false
	}
	p.rec.Sandbox.ID = p.warm.ID
	cr.takeOver(p)
	return true
}

// returnWarm puts back a sandbox of which nothing was changed.
func (cr *creator) returnWarm(p *plan) {
	if p.warm != nil {
		cr.warm.Return(p.warm)
		p.warm = nil
	}
}

// takeOver has a plan take over the identity that the guest of its sandbox has already, where
// the plan's own would differ in the token alone: nobody was ever told that one either, and
// a guest that need not be woken is adopted in a third of the time.
func (cr *creator) takeOver(p *plan) {
	told := p.warm.Sandbox.told
	if told == nil || told.AccessToken == "" || p.rec.Sandbox.AccessToken == "" {
		return
	}
	want := cr.greeter.initRequest(p.rec, p.egress)
	want.AccessToken, want.Generation = told.AccessToken, told.Generation
	if reflect.DeepEqual(want, *told) {
		p.told, p.rec.Sandbox.AccessToken = true, told.AccessToken
	}
}

// leaveWarm makes the plan one for a sandbox from nothing.
func (p *plan) leaveWarm() {
	if p.told { // another sandbox, another token
		p.told, p.rec.Sandbox.AccessToken = false, newToken()
	}
	p.warm = nil
	p.rec.Sandbox.ID = carrel.NewID()
}

// readyMark is a file in a sandbox's directory for as long as it is ready and nobody
// has tried to adopt it. It is what a service that finds a record of state.Warm believes:
// the record alone does not say whether its guest has somebody's identity already. It
// need not reach the disk, for a machine that stops takes the sandbox with it.
const readyMark = "ready"

// adoptWarm makes a sandbox that is ready the reserved one, or ends it: once its guest
// may have been told anything, it is nobody else's any more.
func (cr *creator) adoptWarm(ctx context.Context, b *box, p *plan) (err error) {
	var undo cleanup.Stack
	defer undo.Run()
	undo.Add(func() { cr.table.unreserve(b) })
	w := p.warm.Sandbox
	p.warm.Unwatch() // what it noticed before counts
	undo.Add(func() { _ = os.RemoveAll(b.dir) })
	undo.Add(func() { cr.records.unrecord(b) })
	inst := w.line.inst
	undo.Add(func() { cr.launcher.destroy(b, inst) })
	undo.Add(w.line.hangUp)
	undo.Add(cr.warm.Spoiled)
	if cr.warm.IsDead(p.warm) {
		return errors.New("it ended by itself while it was ready")
	}
	if err := os.Remove(filepath.Join(b.dir, readyMark)); err != nil {
		return err
	}
	b.mu.Lock()
	b.rec.Guest, b.rec.Sandbox.Generation = w.box.rec.Guest, w.box.rec.Sandbox.Generation
	b.mu.Unlock()
	b.adopt(inst, w.box.conn.As(p.rec.Sandbox.AccessToken), p.ttl)
	rec := b.record()
	rec.Sandbox.State = carrel.Running
	written := cr.writeDown(ctx, rec, p, &undo)
	ruled := make(chan error, 1)
	go func() {
		defer trace.Mark(ctx, "network").End()
		ruled <- cr.networks.applyNetwork(opCreate, b)
	}()
	if !p.told {
		err = cr.greeter.init(ctx, b, false)
	}
	if err = first(err, <-ruled, <-written, <-written); err == nil {
		err = b.run(ctx)
	}
	if err != nil {
		return err
	}
	cr.lifecycle.expiry.set(b, rec.Sandbox.Ends)
	undo.Release()
	cr.lifecycle.follow(b, inst, nil)
	return nil
}
