package hostfs

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// MaxEntries is the most files that are shown of one directory. More files are an error (E2BIG), so
// that a directory can't use up all memory.
const MaxEntries = 1 << 20

// Source is a directory for reading only. It is safe for concurrent use.
type Source struct{ root *os.Root }

// Dir is a directory that can be changed. It is safe for concurrent use.
type Dir struct{ Source }

var (
	_ vfs.Source = (*Source)(nil)
	_ vfs.Writer = (*Dir)(nil)
)

// Open opens a directory for reading.
func Open(dir string) (*Source, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &Source{root}, nil
}

// OpenWritable opens a directory for reading and writing.
func OpenWritable(dir string) (*Dir, error) {
	s, err := Open(dir)
	if err != nil {
		return nil, err
	}
	return &Dir{*s}, nil
}

// Close releases the directory. Open files stay open.
func (s *Source) Close() error { return s.root.Close() }

// local returns a source's path in the form of os.Root.
func local(path string) string { return cmp.Or(path, ".") }

// errno returns an error that has an error number. A path that os.Root itself refuses is ENOENT.
func errno(err error) error {
	var no syscall.Errno
	switch {
	case err == nil, errors.As(err, &no):
		return err
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrClosed):
		return err
	}
	return syscall.ENOENT
}

// Lookup implements vfs.Source.
func (s *Source) Lookup(_ any, path string) (vfs.Entry, error) {
	fi, err := s.root.Lstat(local(path))
	if err != nil {
		return vfs.Entry{}, errno(err)
	}
	return s.entry(path, fi)
}

// entry describes a file from its Lstat.
func (s *Source) entry(path string, fi fs.FileInfo) (vfs.Entry, error) {
	e := vfs.Entry{Name: fi.Name(), Links: 1, Mode: fi.Mode(), Size: fi.Size(), Modified: fi.ModTime(), Accessed: fi.ModTime(), Changed: fi.ModTime()}
	system(&e, fi)
	if e.Mode&fs.ModeSymlink != 0 {
		var err error
		if e.Target, err = s.root.Readlink(local(path)); err != nil {
			return e, errno(err)
		}
		if e.Target == "" || len(e.Target) >= 4096 {
			return e, syscall.ENOENT
		}
		e.Mode = fs.ModeSymlink | 0o777
	}
	return e, nil
}

// ReadDir implements vfs.Source. It leaves out files that disappear during the call.
func (s *Source) ReadDir(_ any, path string) ([]vfs.Entry, error) {
	before, err := s.root.Lstat(local(path))
	if err != nil {
		return nil, errno(err)
	}
	if !before.IsDir() {
		return nil, syscall.ENOTDIR // opening a pipe would wait
	}
	// With its own root, each entry is found in one step, and in exactly this directory.
	dir, err := s.root.OpenRoot(local(path))
	if err != nil {
		return nil, errno(err)
	}
	defer dir.Close()
	f, err := dir.Open(".")
	if err != nil {
		return nil, errno(err)
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !os.SameFile(before, fi) {
		return nil, syscall.ENOENT // swapped
	}
	here := Source{dir}
	var out []vfs.Entry
	for {
		names, err := f.Readdirnames(1024)
		for _, name := range names {
			if e, err := here.Lookup(nil, name); err == nil {
				e.Name = name
				out = append(out, e)
			}
		}
		if len(out) > MaxEntries {
			return nil, syscall.E2BIG
		}
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, errno(err)
		}
	}
}

// Open implements vfs.Source.
func (s *Source) Open(_ any, path string, write bool) (vfs.Handle, error) {
	if write {
		return nil, syscall.EROFS
	}
	return s.open(path, os.O_RDONLY)
}

// open opens a regular file. It refuses a link, and a file that has replaced the one that was
// checked.
func (s *Source) open(path string, flag int) (vfs.Handle, error) {
	before, err := s.root.Lstat(path)
	if err != nil {
		return nil, errno(err)
	}
	if !before.Mode().IsRegular() {
		return nil, syscall.ENXIO
	}
	f, err := s.root.OpenFile(path, flag|noWait, 0)
	if err != nil {
		return nil, errno(err)
	}
	fi, err := f.Stat()
	switch {
	case err != nil:
	case !fi.Mode().IsRegular():
		err = syscall.ENXIO
	case !os.SameFile(before, fi):
		err = syscall.ESTALE
	default:
		return &handle{f}, nil
	}
	return nil, errors.Join(errno(err), f.Close())
}

// handle is an open file.
type handle struct{ *os.File }

// Stat implements vfs.Handle.
func (h *handle) Stat() (vfs.Entry, error) {
	fi, err := h.File.Stat()
	if err != nil {
		return vfs.Entry{}, err
	}
	e := vfs.Entry{Links: 1, Mode: fi.Mode(), Size: fi.Size(), Modified: fi.ModTime(), Accessed: fi.ModTime(), Changed: fi.ModTime()}
	system(&e, fi)
	return e, nil
}

// Open implements vfs.Source.
func (d *Dir) Open(_ any, path string, write bool) (vfs.Handle, error) {
	if write {
		return d.open(path, os.O_RDWR)
	}
	return d.open(path, os.O_RDONLY)
}

// Create implements vfs.Writer.
func (d *Dir) Create(path string, perm fs.FileMode) error {
	f, err := d.root.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|noWait, perm.Perm()|0o200)
	if err != nil {
		return errno(err)
	}
	// The sandbox's umask is already in perm. The daemon's umask must not apply.
	return errors.Join(f.Chmod(perm.Perm()), f.Close())
}

// Mkdir implements vfs.Writer.
func (d *Dir) Mkdir(path string, perm fs.FileMode) error {
	if err := d.root.Mkdir(path, perm.Perm()); err != nil {
		return errno(err)
	}
	return errno(d.root.Chmod(path, perm.Perm()))
}

// Symlink implements vfs.Writer.
func (d *Dir) Symlink(target, path string) error { return errno(d.root.Symlink(target, path)) }

// Link implements vfs.Writer.
func (d *Dir) Link(old, path string) error { return errno(d.root.Link(old, path)) }

// Rename implements vfs.Writer.
func (d *Dir) Rename(from, to string) error {
	err := d.root.Rename(from, to)
	if !errors.Is(err, fs.ErrExist) {
		return errno(err)
	}
	// Package os refuses to replace a directory, although the system can replace an empty one.
	// These two steps are not atomic.
	if fi, serr := d.root.Lstat(from); serr != nil || !fi.IsDir() {
		return errno(err)
	}
	if err := d.root.Remove(to); err != nil {
		return errno(err)
	}
	return errno(d.root.Rename(from, to))
}

// Remove implements vfs.Writer.
func (d *Dir) Remove(path string) error { return errno(d.root.Remove(path)) }

// Chmod implements vfs.Writer. It does not set the setuid and setgid bits: the host's users are not
// the sandbox's.
func (d *Dir) Chmod(path string, mode fs.FileMode) error {
	fi, err := d.root.Lstat(local(path))
	if err == nil && fi.Mode()&fs.ModeSymlink != 0 {
		err = syscall.ENOENT // swapped
	}
	if err != nil {
		return errno(err)
	}
	return errno(d.root.Chmod(local(path), mode.Perm()|mode&fs.ModeSticky))
}

// Chtimes implements vfs.Writer.
func (d *Dir) Chtimes(path string, accessed, modified time.Time) error {
	return errno(d.root.Chtimes(local(path), accessed, modified))
}
