package ns

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// filler writes a tar stream into an empty upper layer. pack made the stream from files of hostile
// programs. So the filler never goes through a link that it made, and no name leads out.
type filler struct {
	root  *os.Root
	dir   string
	first uint32
	late  []*tar.Header // directories, whose modes and times are set last
}

// fillLayer writes the stream below dir. It adds first to all ids; 0 leaves the ids unchanged.
func fillLayer(ctx context.Context, r io.Reader, dir string, first uint32) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	f := &filler{root: root, dir: dir, first: first}
	tr := tar.NewReader(&patient{ctx, r})
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = f.entry(&patient{ctx, tr}, h)
		}
		switch {
		case err == nil:
		case context.Cause(ctx) != nil:
			return context.Cause(ctx)
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
			return err
		default:
			return damaged("%w", err)
		}
	}
	for i := len(f.late) - 1; i >= 0; i-- {
		if err := f.settle(f.late[i]); err != nil {
			return damaged("%w", err)
		}
	}
	return nil
}

// entry makes one file.
func (f *filler) entry(r io.Reader, h *tar.Header) error {
	h.Name = filepath.Clean(h.Name)
	if !filepath.IsLocal(h.Name) {
		return fmt.Errorf("%q is no name", h.Name)
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if h.Name != "." {
			if err := f.root.Mkdir(h.Name, 0o700); err != nil {
				return err
			}
		}
		f.late = append(f.late, h)
		return f.attributes(h)
	case tar.TypeSymlink:
		if err := f.root.Symlink(h.Linkname, h.Name); err != nil {
			return err
		}
	case tar.TypeLink:
		return f.root.Link(filepath.Clean(h.Linkname), h.Name)
	case tar.TypeFifo, tar.TypeChar:
		kind := uint32(unix.S_IFIFO)
		if h.Typeflag == tar.TypeChar {
			if h.Devmajor != 0 || h.Devminor != 0 {
				return fmt.Errorf("%q is a device", h.Name)
			}
			kind = unix.S_IFCHR
		}
		if err := f.mknod(h.Name, kind); err != nil || kind == unix.S_IFCHR {
			return err
		}
	case tar.TypeReg:
		if err := f.regular(r, h); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%q is of the unknown kind %q", h.Name, h.Typeflag)
	}
	if err := f.attributes(h); err != nil {
		return err
	}
	return f.settle(h)
}

// parent opens the directory of a name without following links, and returns the last element of the
// name.
func (f *filler) parent(name string) (*os.File, string, error) {
	dir, err := f.root.Open(filepath.Dir(name))
	return dir, filepath.Base(name), err
}

// mknod makes a pipe, or the mark of a removed file.
func (f *filler) mknod(name string, kind uint32) error {
	dir, base, err := f.parent(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Mknodat(int(dir.Fd()), base, kind, 0); err != nil {
		return &os.PathError{Op: "mknod", Path: name, Err: err}
	}
	return nil
}

// regular writes a plain file. Blocks of zeros become holes.
func (f *filler) regular(r io.Reader, h *tar.Header) error {
	w, err := f.root.OpenFile(h.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = copySparse(w, r)
	if err == nil {
		err = w.Truncate(h.Size)
	}
	return errors.Join(err, w.Close())
}

// copySparse copies and skips blocks of zeros.
func copySparse(w *os.File, r io.Reader) error {
	const block = 64 << 10
	zeros, b := make([]byte, block), make([]byte, block)
	for at := int64(0); ; {
		n, err := io.ReadFull(r, b)
		if n > 0 && !bytes.Equal(b[:n], zeros[:n]) {
			if _, err := w.WriteAt(b[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
		switch err {
		case nil:
		case io.EOF, io.ErrUnexpectedEOF:
			return nil
		default:
			return err
		}
	}
}

// attributes sets extended attributes in the overlay's form.
func (f *filler) attributes(h *tar.Header) error {
	for key, value := range h.PAXRecords {
		name, ok := strings.CutPrefix(key, streamAttr)
		switch {
		case !ok:
			continue
		case key == streamOpaque:
			name = opaqueAttr
		case strings.HasPrefix(name, overlayAttr):
			name = escapedAttr + strings.TrimPrefix(name, overlayAttr)
		case !strings.HasPrefix(name, "user."):
			return fmt.Errorf("%q has the attribute %q", h.Name, name)
		}
		err := f.at(h.Name, func(path string) error { return unix.Lsetxattr(path, name, []byte(value), 0) })
		if err != nil {
			return fmt.Errorf("%q: attribute %s: %w", h.Name, name, err)
		}
	}
	return nil
}

// at calls do with a path of a file. The file's directory can't change during the call.
func (f *filler) at(name string, do func(path string) error) error {
	dir, base, err := f.parent(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	return do(fdPath(dir) + "/" + base)
}

// settle sets owner, mode and time.
func (f *filler) settle(h *tar.Header) error {
	if f.first != 0 {
		if h.Uid < 0 || h.Uid >= rangeLen || h.Gid < 0 || h.Gid >= rangeLen {
			return fmt.Errorf("%q belongs to %d:%d", h.Name, h.Uid, h.Gid)
		}
		if err := f.root.Lchown(h.Name, int(f.first)+h.Uid, int(f.first)+h.Gid); err != nil {
			return err
		}
	}
	return f.at(h.Name, func(path string) error {
		if h.Typeflag != tar.TypeSymlink {
			if err := os.Chmod(path, modeOf(h.Mode)); err != nil {
				return err
			}
		}
		return setTime(path, h.ModTime)
	})
}

// modeOf converts tar's mode to Go's.
func modeOf(m int64) fs.FileMode {
	out := fs.FileMode(m) & fs.ModePerm
	for bit, mode := range map[int64]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if m&bit != 0 {
			out |= mode
		}
	}
	return out
}
