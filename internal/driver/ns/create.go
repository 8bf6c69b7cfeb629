package ns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/cleanup"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/tap"
)

const opCreate = "create sandbox"

// Create implements driver.Driver.
func (d *Driver) Create(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	if err := checkSpec(spec); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, d.createError(opCreate, spec.ID, err)
	}
	in, err := d.create(ctx, spec, nil)
	if err != nil {
		return nil, d.createError(opCreate, spec.ID, err)
	}
	return in, nil
}

// The least a sandbox can start with, and the most that can be made.
const (
	minMemoryMB = 32
	minPids     = 16

	maxDiskMB = 8 << 20 // whose blocks 32 bits can count, and half of that
)

// checkSpec refuses what would otherwise fail half way.
func checkSpec(s driver.Spec) error {
	bad := func(field, format string, args ...any) error {
		return &carrel.Error{Op: opCreate, Kind: carrel.Invalid, ID: s.ID, Field: field, Err: fmt.Errorf(format, args...)}
	}
	if _, err := carrel.ParseID(string(s.ID)); err != nil {
		return err
	}
	for field, path := range map[string]string{"root.image": s.Root.Image, "guest": s.Guest, "dir": s.Dir} {
		if !filepath.IsAbs(path) {
			return bad(field, "%q is not an absolute path", path)
		}
	}
	l := s.Limits
	switch {
	case l.MemoryMB < minMemoryMB:
		return bad("memoryMB", "%d MiB is less than the %d the guest needs", l.MemoryMB, minMemoryMB)
	case l.DiskMB < 1 || l.DiskMB > maxDiskMB:
		return bad("diskMB", "%d is not between 1 and %d", l.DiskMB, maxDiskMB)
	case l.CPUs <= 0:
		return bad("cpus", "%g is not positive", l.CPUs)
	case l.Pids < minPids:
		return bad("pids", "%d is less than %d", l.Pids, minPids)
	}
	return nil
}

// create builds the sandbox; on an error it leaves nothing. fill, if set, writes what is already in the upper
// layer of a restored one.
func (d *Driver) create(ctx context.Context, spec driver.Spec, fill fill) (*Instance, error) {
	var undo cleanup.Stack
	defer undo.Run()
	root, err := d.rootID(spec.Root.Image)
	if err != nil {
		return nil, err
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
	undo.Add(func() { destroyGroup(ctx, group) })
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
	defer func() { closeAll(l.disk, l.mounts, l.link) }()
	undo.Add(func() { closeAll(l.guestLog) })
	if err := d.start(ctx, l); err != nil {
		return nil, err
	}
	in := d.newInstance(l)
	// From here on the instance's own end removes all.
	undo.Release()
	undo.Add(in.Abandon)
	if err := in.openLink(ctx, l); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	undo.Release()
	return in, nil
}

// openLink connects the daemon's end of the link.
func (in *Instance) openLink(ctx context.Context, l *launch) error {
	file := l.link
	l.link = nil
	if k := in.d.opts.Keeper; k != nil {
		if err := k.Put(ctx, in.rec.Link, file); err != nil {
			file.Close()
			return fmt.Errorf("keep the link: %w", err)
		}
	}
	link, err := in.d.opts.Network.Attach(ctx, driver.LinkSpec{ID: in.rec.ID, MTU: tap.DefaultMTU}, file)
	if err != nil {
		return fmt.Errorf("attach the link: %w", err)
	}
	in.SetLink(link)
	return nil
}

// createError wraps what create returns.
func (d *Driver) createError(op string, id carrel.ID, err error) error {
	out := &carrel.Error{Op: op, Kind: carrel.Internal, ID: id, Err: err}
	var inner *carrel.Error
	switch {
	case errors.As(err, &inner):
		out.Kind, out.Field, out.Hint = inner.Kind, inner.Field, inner.Hint
		if err == error(inner) && inner.Op == "" && inner.Err != nil {
			out.Err = inner.Err // its field is said once
		}
	case errors.Is(err, context.DeadlineExceeded):
		out.Kind = carrel.TimedOut
	case errors.Is(err, context.Canceled):
		out.Kind = carrel.Unavailable
	case errors.Is(err, os.ErrNotExist):
		out.Kind = carrel.NotFound
	case errors.Is(err, os.ErrExist):
		out.Kind = carrel.AlreadyExists
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		out.Kind, out.Hint = carrel.Exhausted, "the host's disk is full, or a limit of user namespaces or mounts is reached (sysctl user.max_user_namespaces)"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		out.Kind, out.Hint = carrel.Exhausted, "raise the limit of open files (ulimit -n)"
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM):
		out.Kind, out.Hint = carrel.Exhausted, "the host is out of processes or memory"
	case errors.Is(err, os.ErrPermission):
		out.Kind, out.Hint = carrel.Unsupported, hintNamespaces
	}
	return out
}

// destroyGroup removes a group also when ctx has ended.
func destroyGroup(ctx context.Context, g *cgroup.Group) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hosted.UndoTime)
	defer cancel()
	_ = g.Destroy(ctx)
}

// removeFiles removes our files of one sandbox.
func removeFiles(dir string) {
	if dir == "" {
		return
	}
	_ = os.Remove(filepath.Join(dir, diskFile))
	_ = os.Remove(filepath.Join(dir, scratchDir))
	removeTree(filepath.Join(dir, diskDir))
}

// closeAll closes what is open.
func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}
