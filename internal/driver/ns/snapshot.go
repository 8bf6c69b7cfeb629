package ns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
)

var (
	_ driver.Restorer    = (*Driver)(nil)
	_ driver.Snapshotter = (*Instance)(nil)
)

const opSnapshot = "take snapshot"

// Snapshot implements driver.Snapshotter. The snapshot always holds only files, because processes
// of this kernel can't be saved.
func (in *Instance) Snapshot(ctx context.Context, dir string, _ driver.SnapshotOptions) (driver.SnapshotInfo, error) {
	fail := func(kind carrel.Kind, err error) error {
		return &carrel.Error{Op: opSnapshot, Kind: kind, ID: in.rec.ID, Err: err}
	}
	if ctx.Err() != nil {
		return driver.SnapshotInfo{}, fail(carrel.TimedOut, context.Cause(ctx))
	}
	select {
	case in.iceLock <- struct{}{}:
		defer func() { <-in.iceLock }()
	default:
		return driver.SnapshotInfo{}, fail(carrel.Conflict, errors.New("one is being taken, or it is being frozen"))
	}
	frozen := in.isFrozen()
	if err := in.turn(ctx, true, fail); err != nil {
		return driver.SnapshotInfo{}, err
	}
	if !frozen {
		defer func() {
			thaw, cancel := context.WithTimeout(context.WithoutCancel(ctx), hosted.UndoTime)
			defer cancel()
			_ = in.turn(thaw, false, fail) // an ended sandbox needs no thaw
		}()
	}
	root, err := in.rootID()
	if err == nil {
		err = in.write(ctx, dir)
	}
	if err == nil {
		return driver.SnapshotInfo{Driver: "ns", Build: layerBuild, Root: root}, nil
	}
	_ = os.Remove(filepath.Join(dir, layerFile))
	kind := carrel.Internal
	select {
	case <-in.Ended():
		return driver.SnapshotInfo{}, fail(carrel.Unavailable, errors.New(in.Exit().Message))
	default:
	}
	switch {
	case ctx.Err() != nil:
		kind = carrel.TimedOut
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		kind = carrel.Exhausted
	}
	return driver.SnapshotInfo{}, fail(kind, err)
}

// write writes the layer of a sandbox. The sandbox is frozen.
func (in *Instance) write(ctx context.Context, dir string) error {
	w, err := createLayer(dir)
	if err != nil {
		return err
	}
	err = in.withUpper(func(upper string) error { return pack(ctx, w, upper, in.rec.FirstID) })
	return errors.Join(err, w.finish())
}

// withUpper calls f with the directory of the sandbox's upper layer. If the layer is a filesystem
// in a file, withUpper mounts it a second time; the kernel shows the same filesystem through both
// mounts.
func (in *Instance) withUpper(f func(upper string) error) error {
	if in.rec.DiskMB == 0 {
		return f(filepath.Join(in.rec.Dir, diskDir, upperName))
	}
	number, err := loopOf(filepath.Join(in.rec.Dir, diskFile))
	if err != nil {
		return err
	}
	return apart(func() error {
		if err := ownMounts(); err != nil {
			return err
		}
		dir, err := scratch()
		if err != nil {
			return err
		}
		node, at := filepath.Join(dir, "loop"), filepath.Join(dir, diskName)
		if err := errors.Join(os.Mkdir(at, 0o700), unix.Mknod(node, unix.S_IFBLK|0o600, int(unix.Mkdev(loopMajor, number)))); err != nil {
			return err
		}
		m, err := newMount("ext4", unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOATIME, setting{"source", node}, setting{"discard", ""}, setting{"nobarrier", ""})
		if err == nil {
			err = place(m, at)
		}
		if err != nil {
			return err
		}
		return f(filepath.Join(at, upperName))
	})
}

// loopOf finds the loop device of a file.
func loopOf(file string) (uint32, error) {
	names, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil || strings.TrimSuffix(string(b), "\n") != file {
			continue
		}
		var n uint32
		if _, err := fmt.Sscanf(name, "/sys/block/loop%d/", &n); err == nil {
			return n, nil
		}
	}
	return 0, fmt.Errorf("no loop device stands before %s", file)
}

const opRestore = "restore sandbox"

// CanRestore implements driver.Restorer.
func (d *Driver) CanRestore(info driver.SnapshotInfo, _ driver.RestoreOptions) error {
	refuse := func(format string, args ...any) error {
		return &carrel.Error{Op: opRestore, Kind: carrel.Unsupported, Err: fmt.Errorf(format, args...)}
	}
	switch {
	case info.Driver != "ns":
		return refuse("the snapshot was taken by %q, this is ns", info.Driver)
	case info.Memory:
		return refuse("the snapshot holds memory, which this driver can't restore")
	case info.Build != layerBuild || info.CPU != "":
		return refuse("the snapshot's form is %q (for processors %q), this build knows %q", info.Build, info.CPU, layerBuild)
	}
	return nil
}

// open checks that a snapshot fits the spec, and opens its layer.
func (d *Driver) open(dir string, info driver.SnapshotInfo, spec driver.Spec) (*layer, error) {
	root, err := d.rootID(spec.Root.Image)
	if err != nil {
		return nil, err
	}
	if info.Root != root {
		return nil, &carrel.Error{Kind: carrel.Unsupported, Field: "root",
			Err: fmt.Errorf("the snapshot lies on image %s, not on %s", info.Root, root)}
	}
	return openLayer(dir)
}

// Restore implements driver.Restorer. When it returns, everything has been read.
func (d *Driver) Restore(ctx context.Context, dir string, info driver.SnapshotInfo, spec driver.Spec, opts driver.RestoreOptions) (driver.Instance, error) {
	if err := d.CanRestore(info, opts); err != nil {
		return nil, err
	}
	return d.build(ctx, opRestore, spec, func() (*Instance, error) {
		l, err := d.open(dir, info, spec)
		if err != nil {
			return nil, err
		}
		defer l.Close()
		return d.create(ctx, spec, func(upper string, first uint32) error { return fillLayer(ctx, l, upper, first) })
	})
}

// SnapshotFiles implements driver.Restorer. The snapshot itself holds such a stream.
func (d *Driver) SnapshotFiles(ctx context.Context, dir string, info driver.SnapshotInfo, spec driver.Spec) (io.ReadCloser, error) {
	if err := d.CanRestore(info, driver.RestoreOptions{FilesOnly: true}); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, remedies.Explain("read a snapshot's files", spec.ID, err)
	}
	l, err := d.open(dir, info, spec)
	if err != nil {
		return nil, remedies.Explain("read a snapshot's files", spec.ID, err)
	}
	return l, nil
}
