package shell

import (
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// Files is a machine's disk with the rights of one user. It may be used while scripts run and after
// Close. It is a small value: copy it freely. Names are absolute, or relative to the directory that
// it begins at. Errors are *fs.PathError, and match fs.ErrNotExist, fs.ErrPermission and
// fs.ErrExist.
type Files struct {
	view  vfs.View
	dir   string
	umask fs.FileMode
}

// Files returns the disk with the rights of the machine's user. Relative names are below the home
// directory.
func (m *Machine) Files() Files {
	return Files{m.machine.View(m.cred), homeOf(m.options.User), 0}
}

// RootFiles returns the disk with the rights of the superuser: nothing is forbidden. Relative names
// are below the root.
func (m *Machine) RootFiles() Files { return Files{m.machine.View(vfs.Cred{}), "/", 0} }

// abs makes a name absolute.
func (f Files) abs(name string) string {
	switch {
	case strings.HasPrefix(name, "/"):
		return name
	case name == "":
		return f.dir
	}
	return f.dir + "/" + name
}

// ReadFile returns the content of a file.
func (f Files) ReadFile(name string) ([]byte, error) { return f.view.ReadFile(f.abs(name)) }

// WriteFile makes or replaces a file. A new file gets the mode perm.
func (f Files) WriteFile(name string, data []byte, perm fs.FileMode) error {
	return f.view.WriteFile(f.abs(name), data, perm&^f.umask)
}

// Open opens a file for reading.
func (f Files) Open(name string) (io.ReadCloser, error) {
	file, err := f.view.Open(f.abs(name))
	if err != nil {
		return nil, err
	}
	return file, nil
}

// Stat describes a file, following links.
func (f Files) Stat(name string) (fs.FileInfo, error) { return described(f.view.Stat(f.abs(name))) }

// Lstat describes a file and does not follow a link at the end.
func (f Files) Lstat(name string) (fs.FileInfo, error) { return described(f.view.Lstat(f.abs(name))) }

// ReadDir lists a directory, sorted by name.
func (f Files) ReadDir(name string) ([]fs.FileInfo, error) {
	all, err := f.view.ReadDir(f.abs(name))
	if err != nil {
		return nil, err
	}
	out := make([]fs.FileInfo, len(all))
	for i, e := range all {
		out[i] = fileInfo{e, e.Name}
	}
	return out, nil
}

// MkdirAll makes a directory and its parents. A directory that exists is not an error.
func (f Files) MkdirAll(name string, perm fs.FileMode) error {
	return f.view.MkdirAll(f.abs(name), perm&^f.umask)
}

// Remove removes a file or an empty directory.
func (f Files) Remove(name string) error { return f.view.Remove(f.abs(name)) }

// RemoveAll removes a file, or a directory with everything in it. A missing file is not an error.
func (f Files) RemoveAll(name string) error { return f.view.RemoveAll(f.abs(name)) }

// Rename moves a file or a directory. It replaces a file that has the new name.
func (f Files) Rename(from, to string) error { return f.view.Rename(f.abs(from), f.abs(to)) }

// Symlink makes a link that leads to target.
func (f Files) Symlink(target, name string) error { return f.view.Symlink(target, f.abs(name)) }

// Readlink returns the target of a link.
func (f Files) Readlink(name string) (string, error) { return f.view.Readlink(f.abs(name)) }

// Chmod changes the mode of a file.
func (f Files) Chmod(name string, mode fs.FileMode) error { return f.view.Chmod(f.abs(name), mode) }

// FS returns a directory of the disk for the functions of package fs. Links work as they do in the
// machine, and may lead out of the directory. Devices and named pipes are listed, but can't be
// opened.
func (f Files) FS(dir string) fs.FS { return diskFS{f.view, path.Clean(f.abs(dir))} }

// described converts a file's description to the type of package fs.
func described(i vfs.Info, err error) (fs.FileInfo, error) {
	if err != nil {
		return nil, err
	}
	return fileInfo{i, i.Name}, nil
}

// fileInfo is vfs.Info as an fs.FileInfo. Its name is the name that the caller gave. The vfs.Info
// of a link that was followed has the target's name instead.
type fileInfo struct {
	i    vfs.Info
	name string
}

func (f fileInfo) Name() string       { return f.name }
func (f fileInfo) Size() int64        { return f.i.Size }
func (f fileInfo) Mode() fs.FileMode  { return f.i.Mode }
func (f fileInfo) ModTime() time.Time { return f.i.Modified }
func (f fileInfo) IsDir() bool        { return f.i.Mode.IsDir() }

// Sys returns the vfs.Info.
func (f fileInfo) Sys() any { return f.i }
