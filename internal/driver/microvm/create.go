//go:build linux

package microvm

import (
	"context"
	"os"
	"path/filepath"

	"github.com/carrel-dev/carrel/internal/cleanup"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
)

// bounds are the smallest and largest limits with which a sandbox can start. With less memory
// Debian's kernel does not come up. The filesystem counts its blocks in 32 bits, which is enough for
// twice the largest disk.
var bounds = hosted.Bounds{MinMemoryMB: 128, MemoryFor: "the machine's kernel", MinPids: 16, MaxDiskMB: 8 << 20}

// remedies are the hints for errors of Create.
var remedies = hosted.Remedies{NoSpace: "the host's disk is full", Forbidden: hosted.HintNamespaces}

// Create implements driver.Driver. It returns when the machine has begun to boot.
func (d *Driver) Create(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	if err := bounds.Check(spec); err != nil {
		return nil, err
	}
	m, err := d.prepare(ctx)
	if err != nil {
		return nil, remedies.Explain(hosted.OpCreate, spec.ID, err)
	}
	in, err := d.create(ctx, m, spec)
	if err != nil {
		return nil, remedies.Explain(hosted.OpCreate, spec.ID, err)
	}
	return in, nil
}

// create builds the sandbox. On an error it leaves nothing.
func (d *Driver) create(ctx context.Context, m *machine, spec driver.Spec) (*Instance, error) {
	var undo cleanup.Stack
	defer undo.Run()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l := d.newLaunch(spec)
	host, inside, mtu, err := hosted.NewPair()
	if err != nil {
		return nil, err
	}
	defer func() { hosted.CloseAll(host) }()
	l.order.MTU = mtu
	started := false
	defer func() {
		if !started { // start closes them
			hosted.CloseAll(l.files...)
			hosted.CloseAll(inside)
		}
	}()
	undo.Add(func() { removeFiles(spec.Dir) })
	undo.Add(func() { hosted.CloseAll(l.console, l.vmmLog) })
	if err := l.addDisks(); err != nil {
		return nil, err
	}
	if l.group, err = d.groups.Create(string(spec.ID), m.limits(spec.Limits)); err != nil {
		return nil, err
	}
	undo.Add(func() { hosted.DestroyGroup(ctx, l.group) })
	l.files, started = append(l.files, inside), true
	if err := d.start(ctx, m, l); err != nil {
		return nil, err
	}
	in := d.newInstance(m, l)
	// From here on the instance's own end removes everything.
	undo.Release()
	undo.Add(in.Abandon)
	end := host
	host = nil
	if err := d.links.Open(ctx, &in.Life, &in.rec.Record, mtu, end); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	undo.Release()
	return in, nil
}

// removeFiles removes our files of one sandbox.
func removeFiles(dir string) {
	if dir != "" {
		_ = os.Remove(filepath.Join(dir, diskFile))
	}
}
