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

// prepared is a warm sandbox, with the service's data about it.
type prepared struct {
	box    *box // not in the service's table: its record has state.Warm
	line   *line
	boots  bool               // its first process was started, not restored
	told   *guest.InitRequest // everything the guest was told; nil if unknown
	driver driver.Driver
}

// WarmOptions says which sandboxes are kept ready. The zero value keeps none.
type WarmOptions = warm.Options

// WarmFloor is a kind of sandbox and how many of it are kept ready at least.
type WarmFloor = warm.Floor

// keyOf is the kind of sandbox that a plan makes. ok is false for a kind that is not kept ready,
// because it is made from a snapshot, a lent image or one that is not whole, or is quick to make
// anyway.
func (cr *creator) keyOf(p *plan) (key pool.Key, ok bool) {
	if p.cold || p.lent || p.half || !cr.warm.IsOn() || p.from != nil ||
		!p.driver.Info().Capabilities.RealProcesses {
		return "", false
	}
	return keyOfRecord(p.rec, filepath.Base(cr.opts.GuestImage)), true
}

// keyOfRecord is the kind of a sandbox by its record. The kind holds everything that can't be
// changed once the sandbox runs. A replaced image has another root (keepRoot).
func keyOfRecord(r state.Record, guestImage string) pool.Key {
	sb, l := r.Sandbox, r.Sandbox.Limits
	return pool.Key(fmt.Sprintf("%s %s %s %s %g/%d/%d/%d %s", sb.Tier, sb.Template, r.Root, guestImage,
		l.CPUs, l.MemoryMB, l.DiskMB, l.Pids, r.Born))
}

// kindOf describes how to make more sandboxes like the plan's.
func kindOf(p *plan) warm.Kind {
	sb := p.rec.Sandbox
	k := warm.Kind{Template: sb.Alias, Project: p.owner, Tier: sb.Tier, Limits: sb.Limits, Golden: p.golden != ""}
	if k.Template == "" {
		k.Template = sb.Template
	}
	return k
}

// takeWarm gives a plan a warm sandbox, and reports whether there was one. The pool counts the
// request in both cases.
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

// returnWarm puts back an unchanged warm sandbox.
func (cr *creator) returnWarm(p *plan) {
	if p.warm != nil {
		cr.warm.Return(p.warm)
		p.warm = nil
	}
}

// takeOver keeps the identity that the warm sandbox's guest has already, if the plan's identity
// would differ only in the token. Nobody was ever told that token. Without a message to the guest,
// an adoption takes a third of the time.
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

// leaveWarm changes the plan to one for a sandbox made from nothing.
func (p *plan) leaveWarm() {
	if p.told { // a new sandbox gets a new token
		p.told, p.rec.Sandbox.AccessToken = false, newToken()
	}
	p.warm = nil
	p.rec.Sandbox.ID = carrel.NewID()
}

// readyMark is a file in a sandbox's directory. It exists while the sandbox is ready and nobody has
// tried to adopt it. The next service relies on this file for records of state.Warm, because the
// record does not say whether the guest already has a caller's identity. The file need not reach
// the disk, because the sandbox does not survive a stop of the machine.
const readyMark = "ready"

// adoptWarm turns a warm sandbox into the reserved one. If that fails after its guest may have been
// told anything, adoptWarm ends the sandbox, because no other caller may get it.
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
