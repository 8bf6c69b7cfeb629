//go:build linux

package microvm

import (
	"context"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/cleanup"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/trace"
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
	in, err := d.create(ctx, m, spec, nil)
	if err != nil {
		return nil, remedies.Explain(hosted.OpCreate, spec.ID, err)
	}
	return in, nil
}

// create builds the sandbox, from a snapshot unless that is nil. On an error it leaves nothing.
func (d *Driver) create(ctx context.Context, m *machine, spec driver.Spec, from *saved) (*Instance, error) {
	var undo cleanup.Stack
	defer undo.Run()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l := d.newLaunch(spec)
	l.from = from
	if err := d.nameImages(l); err != nil {
		return nil, err
	}
	started := false
	defer func() {
		hosted.CloseAll(l.host)
		if !started { // start closes them
			hosted.CloseAll(l.files...)
		}
	}()
	undo.Add(func() { removeFiles(spec.Dir) })
	undo.Add(func() { hosted.CloseAll(l.console, l.vmmLog) })
	undo.Add(func() {
		if from != nil {
			d.memories.leave(from.ram)
		}
	})
	span := trace.Mark(ctx, "files")
	err := m.engine.equip(ctx, d, l)
	span.EndWith(err)
	if err != nil {
		return nil, err
	}
	if l.group, err = d.groups.Create(string(spec.ID), m.limits(spec.Limits)); err != nil {
		return nil, err
	}
	undo.Add(func() { hosted.DestroyGroup(ctx, l.group) })
	started = true
	span = trace.Mark(ctx, "start the process")
	err = d.start(ctx, m, l)
	span.EndWith(err)
	if err != nil {
		return nil, err
	}
	in := d.newInstance(m, l)
	// From here on the instance's own end removes everything.
	undo.Release()
	undo.Add(in.Abandon)
	end, err := m.engine.hostEnd(l)
	if err != nil {
		return nil, err
	}
	if err := d.links.Open(ctx, &in.Life, &in.rec.Record, l.order.MTU, end); err != nil {
		return nil, err
	}
	if l.restores() {
		err = in.load(ctx, from)
	} else if err = m.engine.boot(ctx, m, l); err != nil {
		err = in.whyNot(ctx, err)
	}
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	undo.Release()
	return in, nil
}

// nameImages finds the identities of a sandbox's images.
func (d *Driver) nameImages(l *launch) (err error) {
	if l.spec.Root.Whole == "" {
		if l.root, err = d.ids.of(l.spec.Root.Image); err != nil {
			return err
		}
	}
	l.guest, err = d.ids.of(l.spec.Guest)
	return err
}

// addMemory gives a VMM that restores memory a copy of it.
func (d *Driver) addMemory(ctx context.Context, l *launch) error {
	if l.from == nil || !l.from.memory {
		return nil
	}
	var err error
	if l.from.ram, err = d.memories.use(ctx, l.from.files[ramFile], l.from.side.Sizes[ramFile]); err != nil {
		return err
	}
	copied, err := dup(l.from.ram.file)
	if err != nil {
		d.memories.leave(l.from.ram)
		l.from.ram = nil
		return err
	}
	l.files = append(l.files, copied)
	return nil
}

// dup returns another descriptor of a file.
func dup(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// removeFiles removes our files of one sandbox.
func removeFiles(dir string) {
	if dir != "" {
		_ = os.Remove(filepath.Join(dir, diskFile))
		removeControl(dir)
		removeTargets(dir)
	}
}
