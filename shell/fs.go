package shell

import (
	"io"
	"io/fs"
	"path"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// diskFS is a directory of a disk as an fs.FS.
type diskFS struct {
	view vfs.View
	dir  string
}

var (
	_ fs.ReadDirFS  = diskFS{}
	_ fs.ReadFileFS = diskFS{}
	_ fs.StatFS     = diskFS{}
	_ fs.ReadLinkFS = diskFS{}
	_ fs.SubFS      = diskFS{}
)

// at returns the path on the disk for a name.
func (d diskFS) at(op, name string) (string, error) {
	if !fs.ValidPath(name) {
		return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return path.Join(d.dir, name), nil
}

// renamed puts the caller's name into an error, without the directory's path.
func renamed(op, name string, err error) error {
	if p, ok := err.(*fs.PathError); ok { // vfs wraps no deeper
		err = p.Err
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// Open implements fs.FS.
func (d diskFS) Open(name string) (fs.File, error) {
	const op = "open"
	full, err := d.at(op, name)
	if err != nil {
		return nil, err
	}
	i, err := d.view.Stat(full)
	switch {
	case err != nil:
		return nil, renamed(op, name, err)
	case i.Mode.IsDir():
		list, err := d.ReadDir(name)
		if err != nil {
			return nil, err
		}
		return &openDir{fileInfo{i, path.Base(name)}, list}, nil
	case !i.Mode.IsRegular():
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid} // reading it might wait for ever, or never end
	}
	f, err := d.view.Open(full)
	if err != nil {
		return nil, renamed(op, name, err)
	}
	return openFile{f, path.Base(name)}, nil
}

// ReadFile implements fs.ReadFileFS.
func (d diskFS) ReadFile(name string) ([]byte, error) {
	f, err := d.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// ReadDir implements fs.ReadDirFS.
func (d diskFS) ReadDir(name string) ([]fs.DirEntry, error) {
	const op = "readdir"
	full, err := d.at(op, name)
	if err != nil {
		return nil, err
	}
	all, err := d.view.ReadDir(full)
	if err != nil {
		return nil, renamed(op, name, err)
	}
	out := make([]fs.DirEntry, len(all))
	for i, e := range all {
		out[i] = fs.FileInfoToDirEntry(fileInfo{e, e.Name})
	}
	return out, nil
}

// Stat implements fs.StatFS.
func (d diskFS) Stat(name string) (fs.FileInfo, error) { return d.describe("stat", name, d.view.Stat) }

// Lstat implements fs.ReadLinkFS.
func (d diskFS) Lstat(name string) (fs.FileInfo, error) {
	return d.describe("lstat", name, d.view.Lstat)
}

func (d diskFS) describe(op, name string, stat func(string) (vfs.Info, error)) (fs.FileInfo, error) {
	full, err := d.at(op, name)
	if err != nil {
		return nil, err
	}
	i, err := stat(full)
	if err != nil {
		return nil, renamed(op, name, err)
	}
	return fileInfo{i, path.Base(name)}, nil
}

// ReadLink implements fs.ReadLinkFS.
func (d diskFS) ReadLink(name string) (string, error) {
	const op = "readlink"
	full, err := d.at(op, name)
	if err != nil {
		return "", err
	}
	target, err := d.view.Readlink(full)
	if err != nil {
		return "", renamed(op, name, err)
	}
	return target, nil
}

// Sub implements fs.SubFS.
func (d diskFS) Sub(dir string) (fs.FS, error) {
	full, err := d.at("sub", dir)
	return diskFS{d.view, full}, err
}

// openFile is an open regular file.
type openFile struct {
	*vfs.File
	name string
}

// Stat implements fs.File.
func (f openFile) Stat() (fs.FileInfo, error) {
	i, err := f.File.Stat()
	return fileInfo{i, f.name}, err
}

// openDir is an open directory, with the rest of its list.
type openDir struct {
	info fileInfo
	left []fs.DirEntry
}

var _ fs.ReadDirFile = (*openDir)(nil)

// Stat implements fs.File.
func (d *openDir) Stat() (fs.FileInfo, error) { return d.info, nil }

// Close implements fs.File.
func (d *openDir) Close() error { return nil }

// Read implements fs.File: a directory has no bytes.
func (d *openDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.info.name, Err: fs.ErrInvalid}
}

// ReadDir implements fs.ReadDirFile.
func (d *openDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 {
		list := d.left
		d.left = nil
		return list, nil
	}
	if len(d.left) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(d.left))
	list := d.left[:n:n]
	d.left = d.left[n:]
	return list, nil
}
