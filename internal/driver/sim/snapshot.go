package sim

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
)

// A snapshot is one file: a line that names the format, the sandbox's changes to the template in
// the form of package vfs, and the SHA-256 of all before.
const (
	snapshotFile  = "files"
	snapshotBuild = "sim 1" // also the line
	snapshotMagic = "carrel " + snapshotBuild + "\n"
)

var (
	_ driver.Snapshotter = (*instance)(nil)
	_ driver.Restorer    = (*Driver)(nil)
)

// Snapshot implements driver.Snapshotter. It saves the files of one moment, as changes to the
// template, and never processes. Commands go on during the snapshot: it writes a copy of that
// moment. The only cost to them is that they copy the data that they change from then on.
func (i *instance) Snapshot(ctx context.Context, dir string, _ driver.SnapshotOptions) (driver.SnapshotInfo, error) {
	return newSnapshot(ctx, i.id, dir, func(f *os.File) (driver.SnapshotInfo, error) { return i.snapshot(ctx, f) })
}

const opSnap = "snapshot sandbox"

// newSnapshot calls write to fill a snapshot's new file. After an error it removes the file.
func newSnapshot(ctx context.Context, id carrel.ID, dir string, write func(*os.File) (driver.SnapshotInfo, error)) (driver.SnapshotInfo, error) {
	fail := func(err error) (driver.SnapshotInfo, error) {
		return driver.SnapshotInfo{}, &carrel.Error{Op: opSnap, Kind: writeKind(ctx, err), ID: id, Err: err}
	}
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	name := filepath.Join(dir, snapshotFile)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fail(err)
	}
	info, err := write(f)
	if cerr := f.Close(); err == nil && cerr != nil {
		_ = os.Remove(name)
		return fail(cerr)
	}
	if err != nil {
		_ = os.Remove(name) // an incomplete file is worthless
	}
	return info, err
}

// snapshot writes the snapshot to its file.
func (i *instance) snapshot(ctx context.Context, f *os.File) (driver.SnapshotInfo, error) {
	fail := func(kind carrel.Kind, err error) (driver.SnapshotInfo, error) {
		return driver.SnapshotInfo{}, &carrel.Error{Op: opSnap, Kind: kind, ID: i.id, Err: err}
	}
	if !i.snapshotting.TryLock() {
		return fail(carrel.Conflict, errors.New("another snapshot is being taken"))
	}
	defer i.snapshotting.Unlock()
	select {
	case <-i.ending:
		return fail(carrel.Unavailable, errors.New("it has ended"))
	default:
	}
	if err := i.encode(ctx, f); err != nil {
		return fail(writeKind(ctx, err), err)
	}
	return driver.SnapshotInfo{Driver: "sim", Build: snapshotBuild}, nil
}

// writeKind is the kind of an error of writing a snapshot.
func writeKind(ctx context.Context, err error) carrel.Kind {
	switch {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return carrel.TimedOut
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return carrel.Exhausted
	case errors.Is(err, os.ErrExist), errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return carrel.Invalid
	}
	return carrel.Internal
}

// encode writes the snapshot's bytes.
func (i *instance) encode(ctx context.Context, f *os.File) error {
	sum := sha256.New()
	buf := bufio.NewWriterSize(bounded{ctx, f}, 64<<10)
	w := io.MultiWriter(sum, buf)
	if _, err := io.WriteString(w, snapshotMagic); err != nil {
		return err
	}
	if err := i.fs.Save(w, i.template); err != nil {
		return err
	}
	if _, err := buf.Write(sum.Sum(nil)); err != nil {
		return err
	}
	return buf.Flush()
}

// bounded is a file whose writes fail when a context has ended.
type bounded struct {
	ctx context.Context
	f   *os.File
}

func (b bounded) Write(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	return b.f.Write(p)
}

// openSnapshot opens a snapshot's file. readSnapshot checks its content.
func openSnapshot(dir string) (*os.File, error) {
	// The flags refuse a link, and a pipe does not block.
	f, err := os.OpenFile(filepath.Join(dir, snapshotFile), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, damaged(err)
	}
	return f, nil
}

// readSnapshot checks a snapshot's first line and checksum. body is the bytes between the two.
func readSnapshot(ctx context.Context, f *os.File) (body *io.SectionReader, err error) {
	fi, err := f.Stat()
	if err != nil {
		return nil, damaged(err)
	}
	if !fi.Mode().IsRegular() {
		return nil, damaged(fmt.Errorf("%s is no plain file", snapshotFile))
	}
	size := fi.Size() - sha256.Size
	if size < int64(len(snapshotMagic)) {
		return nil, damaged(fmt.Errorf("%d bytes are no snapshot", fi.Size()))
	}
	magic := make([]byte, len(snapshotMagic))
	if _, err := f.ReadAt(magic, 0); err != nil || string(magic) != snapshotMagic {
		return nil, damaged(errors.Join(err, fmt.Errorf("it begins with %q", magic)))
	}
	if err := checkSum(ctx, f, size); err != nil {
		return nil, err
	}
	return io.NewSectionReader(f, int64(len(magic)), size-int64(len(magic))), nil
}

// checkSum compares the checksum at the end of a snapshot with the bytes before it.
func checkSum(ctx context.Context, f *os.File, size int64) error {
	sum := sha256.New()
	r := io.NewSectionReader(f, 0, size)
	for {
		if err := ctx.Err(); err != nil {
			return &carrel.Error{Op: opRestore, Kind: carrel.TimedOut, Err: err}
		}
		n, err := io.CopyN(sum, r, 4<<20)
		if err == io.EOF {
			break
		}
		if err != nil {
			return damaged(err)
		}
		_ = n
	}
	var want [sha256.Size]byte
	if _, err := f.ReadAt(want[:], size); err != nil {
		return damaged(err)
	}
	if [sha256.Size]byte(sum.Sum(nil)) != want {
		return damaged(errors.New("its checksum is wrong"))
	}
	return nil
}

const opRestore = "restore snapshot"

// damaged is the error for a file that is no valid snapshot.
func damaged(err error) error {
	return &carrel.Error{Op: opRestore, Kind: carrel.Invalid, Err: fmt.Errorf("the snapshot is damaged: %w", err),
		Hint: "take it from where it was kept again, or use another one"}
}
