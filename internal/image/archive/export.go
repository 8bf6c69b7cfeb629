package archive

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/image"
)

// TarWriter takes the entries of an archive, as a tar.Writer does.
type TarWriter interface {
	WriteHeader(*tar.Header) error
	io.WriteCloser
}

// Export writes the files of a template as an archive, which Tree.Tar reads, and closes w. Equal
// files give equal entries. The guest's mount point and the resolver's configuration are left out,
// because every template gets its own.
func Export(ctx context.Context, files image.Files, w TarWriter) error {
	e := &export{ctx: ctx, files: files, tar: w, links: map[uint64]string{}}
	if err := e.dir("."); err != nil {
		return err
	}
	return w.Close()
}

// export is one Export.
type export struct {
	ctx   context.Context
	files image.Files
	tar   TarWriter
	links map[uint64]string // the first name of each inode that has several
}

// ours are the files that Tree.complete makes anew.
var ours = []string{strings.TrimPrefix(driver.GuestMount, "/"), "etc/resolv.conf"}

// dir writes a directory and everything below it, by name.
func (e *export) dir(name string) error {
	if err := e.ctx.Err(); err != nil {
		return err
	}
	if err := e.entry(name); err != nil {
		return err
	}
	names, err := e.files.List(name)
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, n := range names {
		p := path.Join(name, n)
		if slices.Contains(ours, p) {
			continue
		}
		f, err := e.files.Lstat(p)
		if err != nil {
			return err
		}
		if f.Mode.IsDir() {
			err = e.dir(p)
		} else {
			err = e.entry(p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// entry writes one file.
func (e *export) entry(name string) error {
	f, err := e.files.Lstat(name)
	if err != nil {
		return err
	}
	h := &tar.Header{Name: name, Mode: int64(f.Mode.Perm()), Uid: int(f.UID), Gid: int(f.GID),
		ModTime: f.Modified, Format: tar.FormatPAX}
	for bit, mode := range map[int64]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid,
		0o1000: fs.ModeSticky} {
		if f.Mode&mode != 0 {
			h.Mode |= bit
		}
	}
	switch f.Mode.Type() {
	case 0:
		h.Typeflag, h.Size = tar.TypeReg, f.Size
	case fs.ModeDir:
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
	case fs.ModeSymlink:
		h.Typeflag, h.Linkname = tar.TypeSymlink, f.Target
	case fs.ModeNamedPipe:
		h.Typeflag = tar.TypeFifo
	default:
		return fmt.Errorf("%q: a file of mode %v", name, f.Mode)
	}
	if f.Links > 1 && !f.Mode.IsDir() {
		if first, known := e.links[f.Inode]; known {
			h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
		} else {
			e.links[f.Inode] = name
		}
	}
	if err := e.tar.WriteHeader(h); err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	if h.Typeflag != tar.TypeReg || h.Size == 0 {
		return nil
	}
	rc, err := e.files.Open(name)
	if err != nil {
		return err
	}
	defer rc.Close()
	_, err = io.Copy(e.tar, rc)
	return err
}
