package shell

import (
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// Files is a machine's disk as one of its users may use it, while scripts run or after Close. It is a small value; copy it freely.
// Names are absolute, or below the directory that it begins at. Errors are *fs.PathError, and match fs.ErrNotExist,
// fs.ErrPermission and fs.ErrExist.
type Files struct {
	view  vfs.View
	dir   string
	umask fs.FileMode
}

// Files returns the disk as the machine's user may use it. Relative names are below the home directory.
func (m *Machine) Files() Files {
	return Files{m.machine.View(m.cred), homeOf(m.options.User), 0}
}

// RootFiles returns the disk as the superuser uses it: nothing is forbidden. Relative names are below the root.
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

// ReadFile returns what a file holds.
func (f Files) ReadFile(name string) ([]byte, error) { return f.view.ReadFile(f.abs(name)) }

// WriteFile makes or replaces a file; perm is the mode of one that is made.
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

// MkdirAll makes a directory and its parents; one that exists is no error.
func (f Files) MkdirAll(name string, perm fs.FileMode) error {
	return f.view.MkdirAll(f.abs(name), perm&^f.umask)
}

// Remove removes a file or an empty directory.
func (f Files) Remove(name string) error { return f.view.Remove(f.abs(name)) }

// RemoveAll removes a file or a directory with all that is in it; one that is not there is no error.
func (f Files) RemoveAll(name string) error { return f.view.RemoveAll(f.abs(name)) }

// Rename moves a file or a directory, and replaces what is there.
func (f Files) Rename(from, to string) error { return f.view.Rename(f.abs(from), f.abs(to)) }

// Symlink makes a link that leads to target.
func (f Files) Symlink(target, name string) error { return f.view.Symlink(target, f.abs(name)) }

// Readlink returns where a link leads to.
func (f Files) Readlink(name string) (string, error) { return f.view.Readlink(f.abs(name)) }

// Chmod changes the mode of a file.
func (f Files) Chmod(name string, mode fs.FileMode) error { return f.view.Chmod(f.abs(name), mode) }

// FS returns a directory of the disk for the functions of package fs. Links lead where they lead in the machine, out of the
// directory too. Devices and named pipes are listed and can't be opened.
func (f Files) FS(dir string) fs.FS { return diskFS{f.view, path.Clean(f.abs(dir))} }

// described is a description as package fs has it.
func described(i vfs.Info, err error) (fs.FileInfo, error) {
	if err != nil {
		return nil, err
	}
	return fileInfo{i, i.Name}, nil
}

// fileInfo is vfs.Info as package fs has it. Its name is the one that was asked for: vfs tells that of the file a link leads to.
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
