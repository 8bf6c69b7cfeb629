package agent

import (
	"errors"
	"io/fs"
	"path"

	"github.com/carrel-dev/carrel/internal/guest"
)

// maxDenied is the size at which the file of refusals becomes the old file and a new one begins.
const maxDenied = 1 << 20

// deniedFile is guest.DeniedFile. It is opened when it is first needed. Root inside may remove or
// replace it at any time.
type deniedFile struct {
	f    File
	size int64
}

// append writes a line.
func (d *deniedFile) append(sys System, line []byte) error {
	if d.f != nil && (d.size+int64(len(line)) > maxDenied || !d.isOurs(sys)) {
		_ = d.f.Close() // each line was written whole
		d.f = nil
	}
	if d.f == nil {
		if err := d.open(sys); err != nil {
			return err
		}
	}
	n, err := d.f.Write(line)
	d.size += int64(n)
	return err
}

// isOurs reports whether the file at the path is the one that we write to.
func (d *deniedFile) isOurs(sys System) bool {
	e, err := sys.Lstat(guest.DeniedFile)
	return err == nil && e.Mode.IsRegular() && e.Size == d.size
}

// open begins a new file. A file that exists, from an earlier boot or another program, becomes the
// old file.
func (d *deniedFile) open(sys System) error {
	root := User{Name: "root"}
	dir := path.Dir(guest.DeniedFile)
	_ = sys.Mkdir(path.Dir(dir), root) // they exist, or Create returns the error
	_ = sys.Mkdir(dir, root)
	old, err := sys.Lstat(guest.DeniedFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case old.Mode.IsRegular() && old.Size > 0:
		// Rename replaces everything at the old file's path except a directory, so remove that.
		if e, lerr := sys.Lstat(guest.DeniedFile + ".1"); lerr == nil && e.Mode.IsDir() {
			err = sys.RemoveAll(guest.DeniedFile + ".1")
		}
		if err == nil {
			err = sys.Rename(guest.DeniedFile, guest.DeniedFile+".1")
		}
	default: // a link, pipe or directory: don't follow or wait for it
		err = sys.RemoveAll(guest.DeniedFile)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := sys.Create(guest.DeniedFile, root)
	if err != nil {
		return err
	}
	d.f, d.size = f, 0
	return nil
}
