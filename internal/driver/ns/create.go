package ns

import (
	"context"
	"os"
	"path/filepath"

	"github.com/carrel-dev/carrel/internal/cleanup"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/overlay"
	"github.com/carrel-dev/carrel/internal/linux/tap"
)

// bounds are the smallest and largest limits with which a sandbox can start. The filesystem counts
// its blocks in 32 bits, which is enough for twice the largest disk.
var bounds = hosted.Bounds{MinMemoryMB: 32, MemoryFor: "the guest", MinPids: 16, MaxDiskMB: 8 << 20}

// remedies are the hints for errors of Create.
var remedies = hosted.Remedies{
	NoSpace:   "the host's disk is full, or a limit of user namespaces or mounts is reached (sysctl user.max_user_namespaces)",
	Forbidden: hosted.HintNamespaces,
}

// Create implements driver.Driver.
func (d *Driver) Create(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	return d.build(ctx, hosted.OpCreate, spec, func() (*Instance, error) { return d.create(ctx, spec, nil) })
}

// build checks spec, calls create, and explains its error.
func (d *Driver) build(ctx context.Context, op string, spec driver.Spec, create func() (*Instance, error)) (driver.Instance, error) {
	if err := bounds.Check(spec); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, remedies.Explain(op, spec.ID, err)
	}
	in, err := create()
	if err != nil {
		return nil, remedies.Explain(op, spec.ID, err)
	}
	return in, nil
}

// create builds the sandbox. On an error it leaves nothing. fill may be nil; for a restored sandbox
// it writes the initial content of the upper layer.
func (d *Driver) create(ctx context.Context, spec driver.Spec, fill fill) (*Instance, error) {
	var undo cleanup.Stack
	defer undo.Run()
	root := ""
	if spec.Root.Whole == "" { // else its name is known when it is whole
		var err error
		if root, err = d.rootID(spec.Root.Image); err != nil {
			return nil, err
		}
	}
	l := &launch{spec: spec, root: root, fill: fill}
	if d.full {
		first, err := d.takeRange(spec.ID)
		if err != nil {
			return nil, err
		}
		l.first = first
		undo.Add(func() { d.dropRange(first) })
	}
	group, err := d.groups.Create(string(spec.ID), cgroup.Limits{
		Memory: int64(spec.Limits.MemoryMB) << 20, CPUs: spec.Limits.CPUs, Pids: spec.Limits.Pids,
	})
	if err != nil {
		return nil, err
	}
	l.group = group
	undo.Add(func() { hosted.DestroyGroup(ctx, group) })
	l.ice = d.ice.create(string(spec.ID), group)
	undo.Add(func() { l.ice.remove() })
	for _, t := range []struct {
		dir, key *string
		image    string
	}{{&l.lower, &l.lowerKey, spec.Root.Image}, {&l.guest, &l.guestKey, spec.Guest}} {
		if *t.dir, *t.key, err = d.templates.take(ctx, t.image); err != nil {
			return nil, err
		}
		undo.Add(func() { d.templates.drop(*t.key) })
	}
	undo.Add(func() { removeFiles(spec.Dir) })
	if err := d.makeLayer(l); err != nil {
		return nil, err
	}
	defer func() { hosted.CloseAll(l.disk, l.mounts, l.link) }()
	undo.Add(func() { hosted.CloseAll(l.guestLog) })
	if err := d.start(ctx, l); err != nil {
		return nil, err
	}
	in := d.newInstance(l)
	// From here on the instance's own end removes everything.
	undo.Release()
	undo.Add(in.Abandon)
	link := l.link
	l.link = nil
	if err := d.links.Open(ctx, &in.Life, &in.rec.Record, tap.DefaultMTU, link); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	undo.Release()
	return in, nil
}

// removeFiles removes our files of one sandbox.
func removeFiles(dir string) {
	if dir == "" {
		return
	}
	_ = os.Remove(filepath.Join(dir, diskFile))
	_ = os.Remove(filepath.Join(dir, scratchDir))
	_ = overlay.Remove(filepath.Join(dir, diskDir))
}
