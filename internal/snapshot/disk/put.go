package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/failpoint"
)

// The steps of a Put at which tests can make it fail or die.
const (
	pointWrite   = "disk.put.write"   // before the content is written
	pointSync    = "disk.put.sync"    // before it is synced
	pointRename  = "disk.put.rename"  // before it gets its name
	pointSyncDir = "disk.put.syncdir" // before the name is durable
)

// Put implements snapshot.Blobs. A reader with fewer than size bytes is Invalid. Put does not read
// more than size bytes.
func (b *Blobs) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	const op = "write blob"
	if err := check(ctx, op, name); err != nil {
		return err
	}
	if size < 0 {
		return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "size", Err: fmt.Errorf("%s: %d bytes", name, size)}
	}
	f, err := b.createTemp()
	if err != nil {
		return failed(op, name, err)
	}
	defer f.Close() // this also releases the lock, when the file has its name or is gone
	if err := b.fill(ctx, f, r, size); err != nil {
		return failed(op, name, errors.Join(err, os.Remove(f.Name())))
	}
	if err := b.publish(f, name); err != nil {
		return failed(op, name, errors.Join(err, os.Remove(f.Name())))
	}
	if err := errors.Join(failpoint.Hit(pointSyncDir), b.syncDir(path.Dir(name))); err != nil {
		return failed(op, name, err)
	}
	return nil
}

// createTemp makes a locked file of mode 0600 in tmp~.
func (b *Blobs) createTemp() (*os.File, error) {
	for {
		f, err := os.CreateTemp(filepath.Join(b.dir, tmpDir), "put-")
		if err != nil {
			return nil, err
		}
		var st syscall.Stat_t
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if err == nil {
			err = syscall.Fstat(int(f.Fd()), &st)
		}
		if err == nil && st.Nlink > 0 {
			return f, nil
		}
		// This step failed, or another Open took the file for a leftover before it was locked.
		if err != nil {
			return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
}

// fill writes and syncs the content.
func (b *Blobs) fill(ctx context.Context, f *os.File, r io.Reader, size int64) error {
	if err := failpoint.Hit(pointWrite); err != nil {
		return err
	}
	n, err := io.Copy(f, io.LimitReader(ctxReader{ctx, r}, size))
	if err != nil {
		return err
	}
	if n < size {
		return &carrel.Error{Kind: carrel.Invalid, Field: "size", Err: fmt.Errorf("%d bytes were announced and %d came", size, n)}
	}
	if err := failpoint.Hit(pointSync); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return ctx.Err() // nobody wants it any more
}

// publish gives a finished file its name.
func (b *Blobs) publish(f *os.File, name string) error {
	if err := b.makeDir(path.Dir(name)); err != nil {
		return err
	}
	if err := failpoint.Hit(pointRename); err != nil {
		return err
	}
	err := b.root.Rename(path.Join(tmpDir, filepath.Base(f.Name())), name)
	if errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.EEXIST) {
		return errNested
	}
	return err
}

// errNested is the error when one name is the directory of another: a file system can't hold both.
var errNested = &carrel.Error{Kind: carrel.Invalid, Field: "name", Err: errors.New("the name of one blob is the directory of another"),
	Hint: "give them names of which none is the beginning of another up to a slash"}

// makeDir makes a directory of blobs durably. A file's name is not durable if a power cut can
// remove its directory. An existing directory may never have been synced, so each process syncs
// each directory once.
func (b *Blobs) makeDir(dir string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if dir == "." || b.durable[dir] {
		return nil
	}
	made := ""
	for part := range strings.SplitSeq(dir, "/") {
		parent := path.Join(".", made)
		made = path.Join(made, part)
		if b.durable[made] {
			continue
		}
		err := b.root.Mkdir(made, 0o700)
		if errors.Is(err, os.ErrExist) {
			var fi os.FileInfo
			if fi, err = b.root.Lstat(made); err == nil && !fi.IsDir() {
				return errNested
			}
		}
		if err != nil {
			return err
		}
		if err := b.syncDir(parent); err != nil {
			return err
		}
		b.durable[made] = true
	}
	return nil
}

// ctxReader is a reader that fails when its context has ended.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (c ctxReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
