package git

import (
	"io/fs"
	"os"
	"path"
	"strconv"
	"sync"
	"time"

	"github.com/go-git/go-billy/v5"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// disk is a directory of the machine's filesystem in the form that go-git needs. Package os is
// imported only for the numbers of its flags and the names of its types.
type disk struct {
	c    *tool.Call
	root string
}

var _ billy.Filesystem = (*disk)(nil)

func (d *disk) abs(name string) string { return path.Join(d.root, path.Clean("/"+name)) }

// Create implements billy.Basic.
func (d *disk) Create(name string) (billy.File, error) {
	return d.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666)
}

// Open implements billy.Basic.
func (d *disk) Open(name string) (billy.File, error) { return d.OpenFile(name, os.O_RDONLY, 0) }

// OpenFile implements billy.Basic.
func (d *disk) OpenFile(name string, flag int, perm os.FileMode) (billy.File, error) {
	how := vfs.ReadOnly
	switch {
	case flag&os.O_RDWR != 0:
		how = vfs.ReadWrite
	case flag&os.O_WRONLY != 0:
		how = vfs.WriteOnly
	}
	for bit, f := range map[int]vfs.Flags{os.O_CREATE: vfs.CreateNew, os.O_EXCL: vfs.Exclusive, os.O_TRUNC: vfs.Truncate, os.O_APPEND: vfs.Append} {
		if flag&bit != 0 {
			how |= f
		}
	}
	view := d.c.FS()
	f, err := view.OpenFile(d.abs(name), how, perm&^d.c.Umask())
	if err != nil && flag&os.O_CREATE != 0 && os.IsNotExist(err) {
		if view.MkdirAll(path.Dir(d.abs(name)), 0o777&^d.c.Umask()) == nil {
			f, err = view.OpenFile(d.abs(name), how, perm&^d.c.Umask())
		}
	}
	if err != nil {
		return nil, err
	}
	if !d.c.Step(4) {
		_ = f.Close() // the process is being ended
		return nil, tool.ErrStop
	}
	return &file{File: f, c: d.c, name: name}, nil
}

// Stat implements billy.Basic.
func (d *disk) Stat(name string) (os.FileInfo, error) { return info(d.c.FS().Stat(d.abs(name))) }

// Lstat implements billy.Symlink.
func (d *disk) Lstat(name string) (os.FileInfo, error) { return info(d.c.FS().Lstat(d.abs(name))) }

// Rename implements billy.Basic.
func (d *disk) Rename(from, to string) error {
	if err := d.c.FS().MkdirAll(path.Dir(d.abs(to)), 0o777&^d.c.Umask()); err != nil {
		return err
	}
	return d.c.FS().Rename(d.abs(from), d.abs(to))
}

// Remove implements billy.Basic.
func (d *disk) Remove(name string) error { return d.c.FS().Remove(d.abs(name)) }

// Join implements billy.Basic.
func (d *disk) Join(elem ...string) string { return path.Join(elem...) }

// TempFile implements billy.TempFile.
func (d *disk) TempFile(dir, prefix string) (billy.File, error) {
	var b [8]byte
	d.c.Random(b[:])
	n := uint64(0)
	for _, x := range b {
		n = n<<8 | uint64(x)
	}
	return d.OpenFile(path.Join(dir, prefix+strconv.FormatUint(n, 36)), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// ReadDir implements billy.Dir.
func (d *disk) ReadDir(name string) ([]os.FileInfo, error) {
	all, err := d.c.FS().ReadDir(d.abs(name))
	if err != nil {
		return nil, err
	}
	if !d.c.Step(1 + len(all)) {
		return nil, tool.ErrStop
	}
	out := make([]os.FileInfo, len(all))
	for i, x := range all {
		out[i] = fileInfo{x}
	}
	return out, nil
}

// MkdirAll implements billy.Dir.
func (d *disk) MkdirAll(name string, perm os.FileMode) error {
	return d.c.FS().MkdirAll(d.abs(name), perm&^d.c.Umask())
}

// Symlink implements billy.Symlink.
func (d *disk) Symlink(target, name string) error { return d.c.FS().Symlink(target, d.abs(name)) }

// Readlink implements billy.Symlink.
func (d *disk) Readlink(name string) (string, error) { return d.c.FS().Readlink(d.abs(name)) }

// Chroot implements billy.Chroot.
func (d *disk) Chroot(name string) (billy.Filesystem, error) { return &disk{d.c, d.abs(name)}, nil }

// Root implements billy.Chroot.
func (d *disk) Root() string { return d.root }

// file is an open file.
type file struct {
	*vfs.File
	c    *tool.Call
	name string
	mu   sync.Mutex
}

// Name implements billy.File.
func (f *file) Name() string { return f.name }

// Read implements io.Reader.
func (f *file) Read(b []byte) (int, error) {
	if !f.c.Step(1 + len(b)>>10) {
		return 0, tool.ErrStop
	}
	return f.File.Read(b)
}

// ReadAt implements io.ReaderAt.
func (f *file) ReadAt(b []byte, off int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, err := f.Seek(0, 1)
	if err != nil {
		return 0, err
	}
	defer func() { _, _ = f.Seek(at, 0) }() // it was there before
	if _, err := f.Seek(off, 0); err != nil {
		return 0, err
	}
	n := 0
	for n < len(b) {
		k, err := f.Read(b[n:])
		n += k
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// Lock implements billy.File. It never waits, so a git that is killed leaves no lock behind.
func (f *file) Lock() error { return nil }

// Unlock implements billy.File.
func (f *file) Unlock() error { return nil }

// fileInfo is vfs.Info as an fs.FileInfo.
type fileInfo struct{ vfs.Info }

func info(i vfs.Info, err error) (os.FileInfo, error) {
	if err != nil {
		return nil, err
	}
	return fileInfo{i}, nil
}

// Name implements fs.FileInfo.
func (i fileInfo) Name() string { return i.Info.Name }

// Size implements fs.FileInfo.
func (i fileInfo) Size() int64 { return i.Info.Size }

// Mode implements fs.FileInfo.
func (i fileInfo) Mode() fs.FileMode { return i.Info.Mode }

// ModTime implements fs.FileInfo.
func (i fileInfo) ModTime() time.Time { return i.Info.Modified }

// IsDir implements fs.FileInfo.
func (i fileInfo) IsDir() bool { return i.Info.Mode.IsDir() }

// Sys implements fs.FileInfo.
func (i fileInfo) Sys() any { return nil }
