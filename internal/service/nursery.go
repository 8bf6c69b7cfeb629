package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/cleanup"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/pool"
	"github.com/carrel-dev/carrel/internal/service/warm"
	"github.com/carrel-dev/carrel/internal/state"
)

// nursery makes and ends the warm sandboxes of the pool.
type nursery struct {
	opts     *Options
	log      *slog.Logger
	table    *table
	records  *records
	launcher *launcher
	greeter  *greeter
	gates    *gates
	creator  *creator
	warm     *warm.Pool[*prepared]
}

var _ warm.Host[*prepared] = (*nursery)(nil)

// oneOf describes a warm sandbox for the pool.
func oneOf(one *prepared, key pool.Key) *warm.One[*prepared] {
	sb := one.box.rec.Sandbox
	return &warm.One[*prepared]{Sandbox: one, ID: one.box.id, Key: key, LimitMB: sb.Limits.MemoryMB, CommittedMB: memoryOf(sb)}
}

// Spawn implements warm.Host.
func (n *nursery) Spawn(fn func(life context.Context)) bool {
	return n.table.spawn(func() { fn(n.table.ctx) })
}

// Room implements warm.Host.
func (n *nursery) Room() (int, bool) {
	return n.table.places()
}

// Key implements warm.Host.
func (n *nursery) Key(ctx context.Context, k warm.Kind) (pool.Key, warm.Kind, error) {
	p, key, err := n.plan(ctx, k)
	if err != nil {
		return "", warm.Kind{}, err
	}
	return key, kindOf(p), nil
}

// plan plans another sandbox of a kind, with the key that this kind has now.
func (n *nursery) plan(ctx context.Context, k warm.Kind) (*plan, pool.Key, error) {
	opts := carrel.CreateOptions{Template: k.Template, Tier: k.Tier, Limits: k.Limits}
	if k.Project != "" {
		ctx = within(ctx, k.Project) // in other projects the name means something else
	}
	p, err := n.creator.plan(ctx, opts)
	if err != nil {
		return nil, "", err
	}
	if p.from != nil { // the template is gone and a snapshot has its name
		p.from.release()
		return nil, "", &carrel.Error{Op: warm.Op, Kind: carrel.NotFound, Err: fmt.Errorf("no template %s", clip(k.Template)),
			Hint: "a snapshot has that name, and sandboxes made from snapshots are not kept ready"}
	}
	key, ok := n.creator.keyOf(p)
	if !ok {
		return nil, "", &carrel.Error{Op: warm.Op, Kind: carrel.Unsupported, Err: errors.New("sandboxes of this kind are not kept ready")}
	}
	if p.unripe {
		return nil, "", warm.ErrUnripe
	}
	return p, key, nil
}

// Make implements warm.Host.
func (n *nursery) Make(ctx context.Context, key pool.Key, k warm.Kind) (_ *warm.One[*prepared], err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, n.opts.StartTimeout, fmt.Errorf("it was not ready within %v", n.opts.StartTimeout))
	defer cancel()
	p, now, err := n.plan(ctx, k)
	if err != nil {
		return nil, err
	}
	if now != key {
		return nil, warm.ErrStale
	}
	pass, err := n.gates.enterSpare(ctx, p.rec.Sandbox, "refill")
	if err != nil {
		return nil, err
	}
	defer func() { pass.Done(err) }()
	if n.creator.openGolden(ctx, p) {
		defer p.from.release() // follow has a share of its own
		// What it needs for its first work is read here, while nobody waits.
		p.from.later = driver.WhenWanted
	}
	p.rec.Sandbox.State, p.rec.Sandbox.AccessToken = state.Warm, newToken()
	b := n.table.newBox(p.rec, p.egress, func(error) {})
	var undo cleanup.Stack
	defer undo.Run()
	if err := os.Mkdir(b.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the sandbox's directory: %w", err)
	}
	undo.Add(func() { _ = os.RemoveAll(b.dir) })
	if err := n.record(ctx, b); err != nil {
		return nil, err
	}
	undo.Add(func() { n.records.unrecord(b) })
	inst, line, err := n.launcher.stand(ctx, b, p.driver, p.root, p.from)
	if err != nil {
		n.creator.spoilGolden(p, err)
		return nil, err
	}
	undo.Add(func() { n.launcher.destroy(b, inst) })
	undo.Add(line.hangUp)
	b.adopt(inst, line.conn(b.rec.Sandbox), p.ttl)
	if err := p.from.check(ctx); err != nil {
		n.creator.spoilGolden(p, err)
		return nil, err
	}
	if err := n.placeholder(ctx, b, line); err != nil {
		return nil, err
	}
	if p.golden != "" && p.check.Command != "" {
		n.stretch(ctx, p.check, b)
	}
	if err := n.record(ctx, b); err != nil {
		return nil, err
	}
	n.opts.measureLast(ctx, b.id, inst) // from here on it rests, until it has an owner
	if err := os.WriteFile(filepath.Join(b.dir, readyMark), nil, 0o600); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	undo.Release()
	n.launcher.letGo(b.id, inst, p.from.share())
	told := n.greeter.initRequest(b.record(), b.rules())
	one := oneOf(&prepared{box: b, line: line, boots: p.from.boots(), told: &told, driver: p.driver}, key)
	return one, nil
}

// record writes the record of a warm sandbox, without its token and environment: nobody may know
// the token. The next service does not find them in the record, and gives the guest new ones.
func (n *nursery) record(ctx context.Context, b *box) error {
	rec := b.record()
	rec.Sandbox.AccessToken, rec.Env = "", nil
	return n.opts.Store.PutSandbox(ctx, rec)
}

// Refresh implements warm.Host.
func (n *nursery) Refresh(ctx context.Context, one *prepared) error {
	pass, err := n.gates.gate.Spare(n.gates.spareRequest(one.box.rec.Sandbox, "refresh"))
	if err != nil {
		return nil // another time
	}
	ctx, cancel := context.WithTimeout(ctx, touchTime)
	defer cancel()
	err = one.box.conn.Health(ctx)
	if err == nil {
		err = n.greeter.touch(ctx, one.box.conn, 1)
	}
	pass.Done(nil)
	return err
}

// Wait implements warm.Host.
func (n *nursery) Wait(ctx context.Context, one *prepared) error {
	_, err := one.line.inst.Wait(ctx)
	return err
}

// End implements warm.Host.
func (n *nursery) End(ctx context.Context, one *prepared) error {
	one.line.hangUp()
	one.box.closeConn()
	if err := one.line.inst.Destroy(ctx); err != nil {
		return err
	}
	if err := n.forget(ctx, one.box.id); err != nil {
		n.log.Error("forget a sandbox that was ready", "sandbox", one.box.id, "err", err)
	}
	return nil
}

// forget removes the leftovers of a warm sandbox whose instance is gone.
func (n *nursery) forget(ctx context.Context, id carrel.ID) error {
	err := n.opts.Store.DeleteSandbox(ctx, id)
	return errors.Join(err, os.RemoveAll(filepath.Join(n.opts.Dir, string(id))))
}
