package service

import (
	"context"
	"os"
	"path/filepath"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/carrel-dev/carrel/internal/service/warm"
	"github.com/carrel-dev/carrel/internal/state"
)

// recover handles a warm sandbox of an earlier service. It takes the sandbox over if it is still
// useful and certainly belongs to nobody. Otherwise it ends it. kept says that the sandbox must
// stay.
func (n *nursery) recover(ctx context.Context, rec state.Record, inst driver.Instance) (kept bool, err error) {
	if inst == nil {
		return false, n.forget(ctx, rec.Sandbox.ID)
	}
	b := n.table.newBox(rec, &policy.Policy{}, func(error) {})
	b.rec.Sandbox.AccessToken = newToken()
	found := &prepared{box: b, line: &line{inst: inst}, boots: rec.Sandbox.Generation == 0}
	b.inst, b.conn = inst, found.line.conn(b.rec.Sandbox)
	one, useful := n.reserve(ctx, found)
	if useful {
		n.opts.Meter.Adopted(b.id)
	}
	if useful && n.table.spawn(func() { n.revive(one) }) {
		return true, nil
	}
	return !n.warm.Discard(one), nil
}

// reserve reports whether an earlier service's warm sandbox is useful. If so, the pool counts it as
// being made.
func (n *nursery) reserve(ctx context.Context, found *prepared) (one *warm.One[*prepared], useful bool) {
	rec := found.box.rec
	none := oneOf(found, "")
	if v, ok := driver.As[driver.Versioned](found.box.inst); ok {
		if _, own := v.Build(); !own { // a new sandbox gets this build's kernel
			return none, false
		}
	}
	if _, err := os.Stat(filepath.Join(found.box.dir, readyMark)); err != nil || !n.warm.IsOn() {
		return none, false
	}
	k := warm.Kind{Template: rec.Sandbox.Template, Tier: rec.Sandbox.Tier, Limits: rec.Sandbox.Limits}
	if rec.Sandbox.Alias != "" {
		k.Template = rec.Sandbox.Alias
	}
	if t, ok := n.opts.Images.ByID(rec.Sandbox.Template); ok {
		k.Project = t.Project
	}
	p, key, err := n.plan(ctx, k)
	if err != nil || keyOfRecord(rec, rec.Guest) != key || !n.warm.Reserve(key, kindOf(p)) {
		return none, false
	}
	found.driver = p.driver
	return oneOf(found, key), true
}

// revive makes an earlier service's warm sandbox safe to use: its guest gets a new identity that
// nobody knows.
func (n *nursery) revive(one *warm.One[*prepared]) {
	ctx, cancel := context.WithTimeout(n.table.ctx, recoverTime)
	defer cancel()
	n.warm.Revived(one, n.greeter.greet(ctx, one.Sandbox.box, one.Sandbox.line))
}
