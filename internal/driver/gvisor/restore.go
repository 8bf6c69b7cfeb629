package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
)

const opRestore = "restore sandbox"

var _ driver.Loader = (*Instance)(nil)

// CanRestore implements driver.Restorer.
func (d *Driver) CanRestore(info driver.SnapshotInfo, opts driver.RestoreOptions) error {
	unsupported := func(hint, format string, args ...any) error {
		return &carrel.Error{Op: opRestore, Kind: carrel.Unsupported, Err: fmt.Errorf(format, args...), Hint: hint}
	}
	if info.Driver != d.Info().Name {
		return unsupported("", "the snapshot is of driver %q, this is %q", info.Driver, d.Info().Name)
	}
	if !info.Memory {
		if info.Build != filesBuild {
			return unsupported("restore it with the build that took it", "the snapshot's files have the form %q, this build reads %q", info.Build, filesBuild)
		}
		return nil
	}
	build, err := d.buildName()
	if err != nil {
		return &carrel.Error{Op: opRestore, Kind: carrel.Internal, Err: err}
	}
	if info.Build != build {
		if _, err := d.keptBuild(info.Build); err != nil {
			return err
		}
	}
	if opts.FilesOnly {
		return nil // no program of the snapshot continues
	}
	if missing := missingFeatures(info.CPU, cpuFeatures()); len(missing) > 0 {
		return unsupported("restore it on a machine whose processor has them, or its files only",
			"programs in the snapshot may use features that this processor lacks: %s", strings.Join(missing, " "))
	}
	return nil
}

// Restore implements driver.Restorer. Limits that are part of the restored memory stay as they
// were: a higher limit on processes or disk takes effect only in sandboxes restored without memory.
func (d *Driver) Restore(ctx context.Context, dir string, info driver.SnapshotInfo, spec driver.Spec, opts driver.RestoreOptions) (driver.Instance, error) {
	if err := d.CanRestore(info, opts); err != nil {
		return nil, err
	}
	if err := bounds.Check(spec); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, remedies.Explain(opRestore, spec.ID, context.Cause(ctx))
	}
	err := d.program.whole()
	var in *Instance
	if err == nil {
		in, err = d.restore(ctx, dir, info, spec, opts)
	}
	if err != nil {
		return nil, remedies.Explain(opRestore, spec.ID, err)
	}
	return in, nil
}

// restore opens the snapshot and creates a sandbox from it.
func (d *Driver) restore(ctx context.Context, dir string, info driver.SnapshotInfo, spec driver.Spec, opts driver.RestoreOptions) (*Instance, error) {
	of, err := d.madeOf(spec)
	if err != nil {
		return nil, err
	}
	s, err := openFor(dir, info, of)
	if err != nil {
		return nil, err
	}
	defer func() { s.close() }()
	if info.Memory && opts.FilesOnly {
		only, err := d.extract(ctx, s, info, spec)
		s.close()
		if err != nil {
			return nil, err
		}
		s = only
	}
	if err := s.fits(spec, of); err != nil {
		return nil, err
	}
	if s.memory {
		if of.kernel, err = d.kernelOf(info.Build); err != nil {
			return nil, err
		}
	}
	s.later, s.sameBoot = opts.Later, opts.SameBoot
	return d.create(ctx, spec, of, s)
}

// openFor opens a snapshot and checks that it was taken on this root image.
func openFor(dir string, info driver.SnapshotInfo, of made) (*saved, error) {
	if of.root != info.Root {
		return nil, &carrel.Error{Kind: carrel.Invalid, Field: "root",
			Err: fmt.Errorf("the snapshot lies on image %s, not on %s", info.Root, of.root)}
	}
	return openSaved(dir, info)
}

// fits checks that the new sandbox meets the conditions of a snapshot with memory.
func (s *saved) fits(spec driver.Spec, of made) error {
	low := func(field string, got, want int) error {
		return &carrel.Error{Kind: carrel.Invalid, Field: "limits." + field,
			Err: fmt.Errorf("%d is less than the %d of the snapshot", got, want)}
	}
	if !s.memory {
		return nil
	}
	if s.side.Guest != of.guest { // its processes have it mapped
		return &carrel.Error{Kind: carrel.Unsupported, Hint: "restore it with the build that took it, or its files only",
			Err: fmt.Errorf("the snapshot runs guest %s, this build has %s", s.side.Guest, of.guest)}
	}
	was, now := s.side.Limits, spec.Limits
	switch {
	case now.MemoryMB < was.MemoryMB:
		return low("memoryMB", now.MemoryMB, was.MemoryMB)
	case now.DiskMB < was.DiskMB:
		return low("diskMB", now.DiskMB, was.DiskMB)
	case now.Pids < was.Pids:
		return low("pids", now.Pids, was.Pids)
	}
	return nil
}

// load makes the sentry load the memory instead of starting a guest. The sentry has the files since
// its start and reads them through the socket, see takePages.
func load(conn *urpc.Client, pages *os.File) error {
	err := conn.Call(boot.ContMgrRestore, &boot.RestoreOpts{
		FilePayload:        urpc.FilePayload{Files: []*os.File{pages}},
		UseCheckpointGofer: true,
		Background:         true,
	}, nil)
	if err != nil { // also when loading killed it
		return damaged("the sandbox's kernel can't restore it: %w", err)
	}
	return nil
}

// Content that a restored sandbox may still be loading.
const (
	loadsMemory = "memory"
	loadsFiles  = "files"
)

// Loaded implements driver.Loader. For a sandbox that was not restored it returns
// nil at once.
func (in *Instance) Loaded(ctx context.Context) error {
	const op = "load sandbox"
	var err error
	switch in.rec.Loads {
	case loadsMemory:
		err = in.call(ctx, boot.ContMgrWaitRestore, nil, nil)
	case loadsFiles:
		err = in.call(ctx, boot.ContMgrWaitFSRestore, &boot.WaitFSRestoreArgs{CID: string(in.rec.ID)}, nil)
	}
	var remote urpc.RemoteError
	if errors.As(err, &remote) {
		err = damaged("%w", err)
	}
	return in.wrap(op, err)
}
