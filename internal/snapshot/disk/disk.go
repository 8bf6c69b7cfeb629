// Package disk keeps blobs as files in a directory of this machine.
//
// The blob named packs/ab is the file packs/ab. It is first written under another name in the
// directory tmp~ (no blob can have that name), synced, and renamed. So it exists whole or not at
// all, also after a power cut. The next [Open] removes files in tmp~ that a crash left there; a
// lock on each file shows whether its writer is alive.
//
// Blobs hold the memory of sandboxes. Only their owner has access to the directories and files. No
// name, and no symbolic link below the directory, leads out of it.
package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

// tmpDir holds files that are being written.
const tmpDir = "tmp~"

// Blobs is a [snapshot.Blobs] in a directory.
type Blobs struct {
	dir  string
	root *os.Root

	mu      sync.Mutex
	durable map[string]bool // directories already made and synced, relative to dir
}

var (
	_ snapshot.Blobs  = (*Blobs)(nil)
	_ snapshot.Marker = (*Blobs)(nil)
)

// Open opens the blobs in dir. It makes dir if it does not exist.
func Open(dir string) (_ *Blobs, err error) {
	const op = "open blobs"
	if err := os.MkdirAll(filepath.Join(dir, tmpDir), 0o700); err != nil {
		return nil, failed(op, dir, err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, failed(op, dir, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, failed(op, dir, err)
	}
	b := &Blobs{dir: dir, root: root, durable: map[string]bool{}}
	if err := b.removeLeftovers(); err != nil {
		return nil, errors.Join(failed(op, dir, err), root.Close())
	}
	return b, nil
}

// removeLeftovers removes the files of dead writers from tmp~.
func (b *Blobs) removeLeftovers() error {
	tmp := filepath.Join(b.dir, tmpDir)
	entries, err := os.ReadDir(tmp)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := filepath.Join(tmp, e.Name())
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // its writer finished it
		}
		if err != nil {
			return err
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			err = os.Remove(name)
		} else if errors.Is(err, syscall.EWOULDBLOCK) {
			err = nil // another process is writing it
		}
		if err := errors.Join(err, f.Close()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Get implements snapshot.Blobs. A range past the end of the blob reads only to the end.
func (b *Blobs) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	const op = "read blob"
	if err := check(ctx, op, name); err != nil {
		return nil, err
	}
	if offset < 0 || length < -1 {
		return nil, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "range", Err: fmt.Errorf("%s: %d bytes from %d on", name, length, offset)}
	}
	f, err := b.root.Open(name)
	if missing(err) {
		return nil, &carrel.Error{Op: op, Kind: carrel.NotFound, Err: fmt.Errorf("no blob %s", name)}
	}
	if err != nil {
		return nil, failed(op, name, err)
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = &carrel.Error{Kind: carrel.NotFound, Err: errors.New("is no blob")} // a directory of others
	}
	if err == nil {
		_, err = f.Seek(offset, io.SeekStart)
	}
	if err != nil {
		return nil, failed(op, name, errors.Join(err, f.Close()))
	}
	if length < 0 {
		return f, nil
	}
	return part{io.LimitReader(f, length), f}, nil
}

// part is a range of a file.
type part struct {
	io.Reader
	io.Closer
}

// List implements snapshot.Blobs. fn may call the methods of b.
func (b *Blobs) List(ctx context.Context, prefix string, fn func(snapshot.BlobInfo) error) error {
	if err := snapshot.CheckBlobPrefix(prefix); err != nil {
		return wrap("list blobs", err)
	}
	return b.list(ctx, ".", prefix, fn)
}

// list lists one directory and the directories below it.
func (b *Blobs) list(ctx context.Context, dir, prefix string, fn func(snapshot.BlobInfo) error) error {
	const op = "list blobs"
	f, err := b.root.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return failed(op, dir, err)
	}
	entries, err := f.ReadDir(-1)
	if err = errors.Join(err, f.Close()); err != nil {
		return failed(op, dir, err)
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return failed(op, dir, err)
		}
		name := path.Join(dir, e.Name())
		below := name + "/"
		switch {
		case snapshot.CheckBlobName(name) != nil: // tmp~, and files that somebody else put here
		case e.IsDir() && (strings.HasPrefix(below, prefix) || strings.HasPrefix(prefix, below)):
			if err := b.list(ctx, name, prefix, fn); err != nil {
				return err
			}
		case e.Type().IsRegular() && strings.HasPrefix(name, prefix):
			fi, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue // it has been deleted
			}
			if err != nil {
				return failed(op, name, err)
			}
			if err := fn(snapshot.BlobInfo{Name: name, Size: fi.Size(), Modified: fi.ModTime()}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Mark implements snapshot.Marker.
func (b *Blobs) Mark(ctx context.Context, name string) (string, error) {
	const op = "stat blob"
	if err := check(ctx, op, name); err != nil {
		return "", err
	}
	fi, err := b.root.Lstat(name)
	if missing(err) {
		return "", &carrel.Error{Op: op, Kind: carrel.NotFound, Err: fmt.Errorf("no blob %s", name)}
	}
	if err != nil {
		return "", failed(op, name, err)
	}
	mark := fmt.Sprintf("%d bytes, written %d", fi.Size(), fi.ModTime().UnixNano())
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		mark += fmt.Sprintf(", inode %d", st.Ino)
	}
	return mark, nil
}

// Delete implements snapshot.Blobs. A file that is being read stays readable.
func (b *Blobs) Delete(ctx context.Context, name string) error {
	const op = "delete blob"
	if err := check(ctx, op, name); err != nil {
		return err
	}
	fi, err := b.root.Lstat(name)
	if err == nil && fi.IsDir() {
		return nil // a directory of other blobs
	}
	if err == nil {
		err = b.root.Remove(name)
	}
	if missing(err) {
		return nil
	}
	if err == nil {
		err = b.syncDir(path.Dir(name))
	}
	if err != nil {
		return failed(op, name, err)
	}
	return nil
}

// Close implements snapshot.Blobs.
func (b *Blobs) Close() error {
	if err := b.root.Close(); err != nil {
		return failed("close blobs", b.dir, err)
	}
	return nil
}

// syncDir makes renames and removals in a directory durable.
func (b *Blobs) syncDir(dir string) error {
	d, err := b.root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// check makes the checks at the start of each call on one blob.
func check(ctx context.Context, op, name string) error {
	if err := snapshot.CheckBlobName(name); err != nil {
		return wrap(op, err)
	}
	if err := ctx.Err(); err != nil {
		return failed(op, name, err)
	}
	return nil
}

// missing reports whether the error means that the file or its directory does not exist.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// wrap puts op in front of an error that already has its kind.
func wrap(op string, err error) error {
	return &carrel.Error{Op: op, Kind: carrel.KindOf(err), Err: err}
}

// failed wraps an error of the operating system.
func failed(op, what string, err error) error {
	e := &carrel.Error{Op: op, Kind: carrel.KindOf(err), Err: fmt.Errorf("%s: %w", what, err)}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.Kind, e.Field = carrel.Exhausted, "disk"
		e.Hint = "free some disk space where snapshots are kept, or delete snapshots"
	case errors.Is(err, context.DeadlineExceeded):
		e.Kind = carrel.TimedOut
	case errors.Is(err, context.Canceled):
		e.Kind = carrel.Unavailable
	}
	return e
}
