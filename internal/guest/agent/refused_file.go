package agent

import (
	"errors"
	"io/fs"
	"path"

	"github.com/carrel-dev/carrel/internal/guest"
)

// maxDenied is how large the file of refusals grows before it becomes the old one.
const maxDenied = 1 << 20

// deniedFile is guest.DeniedFile, opened when it is first needed. Anything may have
// become of it meanwhile: whoever is root inside may remove or replace it.
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

// isOurs reports whether what has the file's name is what we write to.
func (d *deniedFile) isOurs(sys System) bool {
	e, err := sys.Lstat(guest.DeniedFile)
	return err == nil && e.Mode.IsRegular() && e.Size == d.size
}

// open begins a new file. What there was, of an earlier boot or of another's making,
// becomes the old one.
func (d *deniedFile) open(sys System) error {
	root := User{Name: "root"}
	dir := path.Dir(guest.DeniedFile)
	_ = sys.Mkdir(path.Dir(dir), root) // they are there, or Create says why not
	_ = sys.Mkdir(dir, root)
	old, err := sys.Lstat(guest.DeniedFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case old.Mode.IsRegular() && old.Size > 0:
		// Whatever has the old one's name, Rename replaces it; not a directory, which must go.
		if e, lerr := sys.Lstat(guest.DeniedFile + ".1"); lerr == nil && e.Mode.IsDir() {
			err = sys.RemoveAll(guest.DeniedFile + ".1")
		}
		if err == nil {
			err = sys.Rename(guest.DeniedFile, guest.DeniedFile+".1")
		}
	default: // a link, a pipe, a directory: it is not followed or waited for
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
