package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// CanRestore implements driver.Restorer. It accepts snapshots of this driver and format.
func (d *Driver) CanRestore(info driver.SnapshotInfo, _ driver.RestoreOptions) error {
	return canRestore(info)
}

func canRestore(info driver.SnapshotInfo) error {
	var why string
	switch {
	case info.Driver != "sim":
		why = fmt.Sprintf("it was written by driver %q, and this is \"sim\"", info.Driver)
	case info.Build != snapshotBuild:
		why = fmt.Sprintf("its build is %q, and this is %q", info.Build, snapshotBuild)
	case info.Memory:
		why = "it holds memory, and simulated sandboxes keep files only"
	case info.CPU != "":
		why = fmt.Sprintf("it asks for the processor features %q, and there is no processor here", info.CPU)
	default:
		return nil
	}
	return &carrel.Error{Op: opRestore, Kind: carrel.Unsupported, Err: errors.New(why),
		Hint: "restore it with the version of carrel that made it"}
}

// Restore implements driver.Restorer. It needs dir only until it returns.
func (d *Driver) Restore(ctx context.Context, dir string, info driver.SnapshotInfo, spec driver.Spec, opts driver.RestoreOptions) (driver.Instance, error) {
	if err := d.CanRestore(info, opts); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, &carrel.Error{Op: opRestore, Kind: carrel.Unavailable, ID: spec.ID, Err: err}
	}
	f, err := openSnapshot(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return d.restore(ctx, f, spec)
}

// restore makes a sandbox from a snapshot's file.
func (d *Driver) restore(ctx context.Context, f *os.File, spec driver.Spec) (driver.Instance, error) {
	files, template, err := d.load(ctx, f, spec)
	if err != nil {
		return nil, err
	}
	return d.start(spec, files, template)
}

// load reads a snapshot's files.
func (d *Driver) load(ctx context.Context, f *os.File, spec driver.Spec) (files, template *vfs.FS, err error) {
	if template, err = d.template(); err != nil {
		return nil, nil, &carrel.Error{Op: opRestore, Kind: carrel.Internal, ID: spec.ID, Err: err}
	}
	body, err := readSnapshot(ctx, f)
	if err != nil {
		return nil, nil, err
	}
	files, err = vfs.Load(body, template, d.disk(spec))
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return nil, nil, &carrel.Error{Op: opRestore, Kind: carrel.Exhausted, ID: spec.ID,
			Err:  fmt.Errorf("its files need more than the disk limit of %d MiB", spec.Limits.DiskMB),
			Hint: "restore it with a disk as large as the snapshot's sandbox had"}
	case err != nil:
		return nil, nil, damaged(err)
	}
	return files, template, nil
}

// SnapshotFiles implements driver.Restorer. The root image is the built-in template of this build.
// Files that no sandbox changed are not in a snapshot.
func (d *Driver) SnapshotFiles(ctx context.Context, dir string, info driver.SnapshotInfo, spec driver.Spec) (io.ReadCloser, error) {
	if err := d.CanRestore(info, driver.RestoreOptions{}); err != nil {
		return nil, err
	}
	f, err := openSnapshot(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	files, template, err := d.load(ctx, f, spec)
	if err != nil {
		return nil, err
	}
	return newTarStream(files.Delta(template)), nil
}
