package script

import (
	"errors"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"time"

	experimentalsys "github.com/tetratelabs/wazero/experimental/sys"
	"github.com/tetratelabs/wazero/sys"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// machineFS is the machine's disk in the form for WASI. Paths have no leading slash.
type machineFS struct {
	experimentalsys.UnimplementedFS
	r *pythonRun
}

// wasiErrno returns WASI's number for an error.
func wasiErrno(err error) experimentalsys.Errno {
	if err == nil {
		return 0
	}
	var no syscall.Errno
	if !errors.As(err, &no) {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			no = syscall.ENOENT
		case errors.Is(err, fs.ErrExist):
			no = syscall.EEXIST
		case errors.Is(err, fs.ErrPermission):
			no = syscall.EACCES
		}
	}
	if n, ok := wasiErrnos[no]; ok {
		return n
	}
	return experimentalsys.EIO
}

var wasiErrnos = map[syscall.Errno]experimentalsys.Errno{syscall.EACCES: experimentalsys.EACCES, syscall.EBADF: experimentalsys.EBADF,
	syscall.EEXIST: experimentalsys.EEXIST, syscall.EINVAL: experimentalsys.EINVAL, syscall.EISDIR: experimentalsys.EISDIR, syscall.ELOOP: experimentalsys.ELOOP,
	syscall.ENAMETOOLONG: experimentalsys.ENAMETOOLONG, syscall.ENOENT: experimentalsys.ENOENT, syscall.ENOTDIR: experimentalsys.ENOTDIR,
	syscall.ENOTEMPTY: experimentalsys.ENOTEMPTY, syscall.EPERM: experimentalsys.EPERM, syscall.EROFS: experimentalsys.EROFS, syscall.ENOTSUP: experimentalsys.ENOTSUP}

func (m *machineFS) view() vfs.View { return m.r.c.FS() }

// abs makes a path absolute.
func abs(path string) string {
	if path == "" || path == "." {
		return "/"
	}
	return "/" + strings.TrimPrefix(path, "/")
}

// doors is the directory of the files through which boot.py calls the machine.
const doors = ".carrel/"

func stat(i vfs.Info) sys.Stat_t {
	t := i.Modified.UnixNano()
	return sys.Stat_t{Dev: 1, Ino: i.Ino, Mode: i.Mode, Nlink: uint64(max(i.Links, 1)), Size: i.Size, Atim: t, Mtim: t, Ctim: t}
}

// OpenFile implements FS.
func (m *machineFS) OpenFile(path string, flag experimentalsys.Oflag, perm fs.FileMode) (experimentalsys.File, experimentalsys.Errno) {
	if !m.r.c.Step(10) {
		panic(errEnded)
	}
	if name, ok := strings.CutPrefix(path, doors); ok {
		if d := openDoor(m.r, name); d != nil {
			return d, 0
		}
	}
	name := abs(path)
	look := m.view().Stat
	if flag&experimentalsys.O_NOFOLLOW != 0 {
		look = m.view().Lstat
	}
	i, err := look(name)
	switch {
	case err == nil && i.Mode&fs.ModeSymlink != 0:
		return nil, experimentalsys.ELOOP
	case err == nil && i.Mode.IsDir():
		if flag&(experimentalsys.O_RDWR|experimentalsys.O_WRONLY|experimentalsys.O_CREAT) != 0 && flag&experimentalsys.O_DIRECTORY == 0 {
			return nil, experimentalsys.EISDIR
		}
		return &openDir{m: m, name: name}, 0
	case err == nil && flag&experimentalsys.O_DIRECTORY != 0:
		return nil, experimentalsys.ENOTDIR
	}
	flags := vfs.ReadOnly
	switch {
	case flag&experimentalsys.O_RDWR != 0:
		flags = vfs.ReadWrite
	case flag&experimentalsys.O_WRONLY != 0:
		flags = vfs.WriteOnly
	}
	for from, to := range map[experimentalsys.Oflag]vfs.Flags{experimentalsys.O_CREAT: vfs.CreateNew, experimentalsys.O_EXCL: vfs.Exclusive,
		experimentalsys.O_TRUNC: vfs.Truncate, experimentalsys.O_APPEND: vfs.Append} {
		if flag&from != 0 {
			flags |= to
		}
	}
	if flags&(vfs.Truncate|vfs.Append) != 0 && flags&vfs.WriteOnly == 0 {
		flags |= vfs.ReadWrite
	}
	f, err := m.r.c.Open(name, flags, 0o666)
	if err != nil {
		return nil, wasiErrno(err)
	}
	return &openFile{m: m, f: f, name: name, append: flags&vfs.Append != 0}, 0
}

// Lstat implements FS.
func (m *machineFS) Lstat(path string) (sys.Stat_t, experimentalsys.Errno) {
	i, err := m.view().Lstat(abs(path))
	return stat(i), wasiErrno(err)
}

// Stat implements FS.
func (m *machineFS) Stat(path string) (sys.Stat_t, experimentalsys.Errno) {
	i, err := m.view().Stat(abs(path))
	return stat(i), wasiErrno(err)
}

// Mkdir implements FS.
func (m *machineFS) Mkdir(path string, _ fs.FileMode) experimentalsys.Errno {
	return wasiErrno(m.view().Mkdir(abs(path), 0o777&^m.r.c.Umask())) // WASI has no modes
}

// Chmod implements FS.
func (m *machineFS) Chmod(path string, perm fs.FileMode) experimentalsys.Errno {
	return wasiErrno(m.view().Chmod(abs(path), perm))
}

// Rename implements FS.
func (m *machineFS) Rename(from, to string) experimentalsys.Errno {
	return wasiErrno(m.view().Rename(abs(from), abs(to)))
}

// remove removes a directory, or a file that is not a directory.
func (m *machineFS) remove(path string, dir bool) experimentalsys.Errno {
	i, err := m.view().Lstat(abs(path))
	switch {
	case err != nil:
		return wasiErrno(err)
	case dir && !i.Mode.IsDir():
		return experimentalsys.ENOTDIR
	case !dir && i.Mode.IsDir():
		return experimentalsys.EISDIR
	}
	return wasiErrno(m.view().Remove(abs(path)))
}

// Rmdir implements FS.
func (m *machineFS) Rmdir(path string) experimentalsys.Errno { return m.remove(path, true) }

// Unlink implements FS.
func (m *machineFS) Unlink(path string) experimentalsys.Errno { return m.remove(path, false) }

// Link implements FS.
func (m *machineFS) Link(old, name string) experimentalsys.Errno {
	return wasiErrno(m.view().Link(abs(old), abs(name)))
}

// Symlink implements FS.
func (m *machineFS) Symlink(target, name string) experimentalsys.Errno {
	return wasiErrno(m.view().Symlink(target, abs(name)))
}

// Readlink implements FS.
func (m *machineFS) Readlink(path string) (string, experimentalsys.Errno) {
	s, err := m.view().Readlink(abs(path))
	return s, wasiErrno(err)
}

// Utimens implements FS.
func (m *machineFS) Utimens(path string, _, mtim int64) experimentalsys.Errno {
	if mtim == experimentalsys.UTIME_OMIT {
		return 0
	}
	return wasiErrno(m.view().Chtimes(abs(path), time.Unix(0, mtim)))
}

// openFile is an open file of the machine's disk.
type openFile struct {
	experimentalsys.UnimplementedFile
	m      *machineFS
	f      tool.File
	name   string
	append bool
}

// IsAppend implements File.
func (o *openFile) IsAppend() bool { return o.append }

// SetAppend implements File.
func (o *openFile) SetAppend(on bool) experimentalsys.Errno {
	if on == o.append {
		return 0
	}
	return experimentalsys.ENOTSUP
}

// Ino implements File.
func (o *openFile) Ino() (sys.Inode, experimentalsys.Errno) {
	i, err := o.f.Stat()
	return i.Ino, wasiErrno(err)
}

// Stat implements File.
func (o *openFile) Stat() (sys.Stat_t, experimentalsys.Errno) {
	i, err := o.f.Stat()
	return stat(i), wasiErrno(err)
}

// Read implements File.
func (o *openFile) Read(b []byte) (int, experimentalsys.Errno) {
	if len(b) == 0 {
		return 0, 0
	}
	if !o.m.r.c.Step(1 + len(b)>>10) {
		panic(errEnded)
	}
	n, err := o.f.Read(b)
	if err == io.EOF {
		err = nil
	}
	return n, wasiErrno(err)
}

// at runs an operation at an offset, and then restores the offset.
func (o *openFile) at(off int64, do func() (int, experimentalsys.Errno)) (int, experimentalsys.Errno) {
	old, err := o.f.Seek(0, io.SeekCurrent)
	if err == nil {
		_, err = o.f.Seek(off, io.SeekStart)
	}
	if err != nil {
		return 0, wasiErrno(err)
	}
	n, no := do()
	_, _ = o.f.Seek(old, io.SeekStart) // it could be sought before
	return n, no
}

// Pread implements File.
func (o *openFile) Pread(b []byte, off int64) (int, experimentalsys.Errno) {
	return o.at(off, func() (int, experimentalsys.Errno) { return o.Read(b) })
}

// Seek implements File.
func (o *openFile) Seek(off offset, whence int) (int64, experimentalsys.Errno) {
	n, err := o.f.Seek(off, whence)
	return n, wasiErrno(err)
}

// Write implements File.
func (o *openFile) Write(b []byte) (int, experimentalsys.Errno) {
	if !o.m.r.c.Step(1 + len(b)>>10) {
		panic(errEnded)
	}
	n, err := o.f.Write(b)
	return n, wasiErrno(err)
}

// Pwrite implements File.
func (o *openFile) Pwrite(b []byte, off int64) (int, experimentalsys.Errno) {
	return o.at(off, func() (int, experimentalsys.Errno) { return o.Write(b) })
}

// Truncate implements File.
func (o *openFile) Truncate(size int64) experimentalsys.Errno { return wasiErrno(o.f.Truncate(size)) }

// Sync implements File.
func (o *openFile) Sync() experimentalsys.Errno { return 0 }

// Datasync implements File.
func (o *openFile) Datasync() experimentalsys.Errno { return 0 }

// Utimens implements File.
func (o *openFile) Utimens(a, mt int64) experimentalsys.Errno { return o.m.Utimens(o.name, a, mt) }

// Close implements File.
func (o *openFile) Close() experimentalsys.Errno { return wasiErrno(o.f.Close()) }

// openDir is an open directory.
type openDir struct {
	experimentalsys.UnimplementedFile
	m     *machineFS
	name  string
	left  []vfs.Info
	begun bool
}

// IsDir implements File.
func (o *openDir) IsDir() (bool, experimentalsys.Errno) { return true, 0 }

// Ino implements File.
func (o *openDir) Ino() (sys.Inode, experimentalsys.Errno) {
	i, err := o.m.view().Stat(o.name)
	return i.Ino, wasiErrno(err)
}

// Stat implements File.
func (o *openDir) Stat() (sys.Stat_t, experimentalsys.Errno) { return o.m.Stat(o.name) }

// Read implements File.
func (o *openDir) Read([]byte) (int, experimentalsys.Errno) { return 0, experimentalsys.EISDIR }

// Seek implements File. It can only go back to the beginning.
func (o *openDir) Seek(off offset, whence int) (int64, experimentalsys.Errno) {
	if off != 0 || whence != io.SeekStart {
		return 0, experimentalsys.EINVAL
	}
	o.begun, o.left = false, nil
	return 0, 0
}

// Readdir implements File.
func (o *openDir) Readdir(n int) ([]experimentalsys.Dirent, experimentalsys.Errno) {
	if !o.begun {
		all, err := o.m.view().ReadDir(o.name)
		if err != nil {
			return nil, wasiErrno(err)
		}
		o.begun, o.left = true, all
	}
	if n <= 0 || n > len(o.left) {
		n = len(o.left)
	}
	if !o.m.r.c.Step(n + 1) {
		panic(errEnded)
	}
	out := make([]experimentalsys.Dirent, n)
	for i, e := range o.left[:n] {
		out[i] = experimentalsys.Dirent{Ino: e.Ino, Name: e.Name, Type: e.Mode.Type()}
	}
	o.left = o.left[n:]
	return out, 0
}

// Utimens implements File.
func (o *openDir) Utimens(a, mt int64) experimentalsys.Errno { return o.m.Utimens(o.name, a, mt) }

// Sync implements File.
func (o *openDir) Sync() experimentalsys.Errno { return 0 }

// Datasync implements File.
func (o *openDir) Datasync() experimentalsys.Errno { return 0 }

// Close implements File.
func (o *openDir) Close() experimentalsys.Errno { return 0 }

// offset is another name for int64. Without it, vet mistakes the Seek of wazero's File for a wrong
// io.Seeker.
type offset = int64
