package ns

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
)

// Extended attributes. The overlay of a user namespace keeps its own attributes under user.overlay.
// If a program inside sets attributes with that name, the overlay keeps them one level deeper.
const (
	overlayAttr   = "user.overlay."
	escapedAttr   = "user.overlay.overlay."
	opaqueAttr    = "user.overlay.opaque"
	streamOpaque  = "SCHILY.xattr.trusted.overlay.opaque"
	streamAttr    = "SCHILY.xattr."
	maxAttrsBytes = 64 << 10
)

// packer writes the upper layer of a sandbox as a tar stream. The sandbox must not run. The layer
// is hostile: it holds any files that the programs inside made, with any names that the kernel
// allows.
type packer struct {
	ctx   context.Context
	w     io.Writer
	tw    *tar.Writer
	root  string
	first uint32               // subtracted from ids
	one   bool                 // there is only one id, root's
	seen  map[[2]uint64]string // files with several names, by inode
}

// pack writes everything below root.
func pack(ctx context.Context, w io.Writer, root string, first uint32) error {
	p := &packer{ctx: ctx, w: w, tw: tar.NewWriter(w), root: root, first: first, one: first == 0, seen: map[[2]uint64]string{}}
	err := filepath.WalkDir(root, func(name string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		if "/"+rel == driver.GuestMount {
			return fs.SkipDir // only the guest's mount point
		}
		return p.entry(name, rel)
	})
	return errors.Join(err, p.tw.Close())
}

// entry writes one file.
func (p *packer) entry(name, rel string) error {
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		return &os.PathError{Op: "lstat", Path: rel, Err: err}
	}
	h := &tar.Header{Name: rel, Format: tar.FormatPAX, Mode: int64(st.Mode & 0o7777), ModTime: time.Unix(st.Mtim.Unix()), PAXRecords: map[string]string{}}
	if !p.one {
		h.Uid, h.Gid = int(st.Uid-p.first), int(st.Gid-p.first)
	}
	if err := p.attributes(name, h); err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		h.Typeflag, h.Name = tar.TypeDir, rel+"/"
	case unix.S_IFLNK:
		target, err := os.Readlink(name)
		if err != nil {
			return err
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, target
	case unix.S_IFIFO:
		h.Typeflag = tar.TypeFifo
	case unix.S_IFCHR:
		if st.Rdev != 0 {
			return nil // no program inside could make these
		}
		return p.tw.WriteHeader(&tar.Header{Name: rel, Typeflag: tar.TypeChar, Format: tar.FormatPAX})
	case unix.S_IFREG:
		return p.regular(name, h, st)
	default:
		return nil // block devices, and sockets without a listener
	}
	return p.tw.WriteHeader(h)
}

// attributes adds the attributes that a program may have set, and the mark of a directory that
// hides the template's.
func (p *packer) attributes(name string, h *tar.Header) error {
	b := make([]byte, maxAttrsBytes)
	n, err := unix.Llistxattr(name, b)
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "listxattr", Path: h.Name, Err: err}
	}
	value := make([]byte, maxAttrsBytes)
	for _, key := range strings.Split(strings.TrimSuffix(string(b[:n]), "\x00"), "\x00") {
		if !strings.HasPrefix(key, "user.") || strings.Contains(key, "=") {
			continue // only the host's root sets it, or no record can hold it
		}
		n, err := unix.Lgetxattr(name, key, value)
		if err != nil {
			return &os.PathError{Op: "getxattr", Path: h.Name, Err: err}
		}
		switch {
		case key == opaqueAttr && string(value[:n]) == "y":
			h.PAXRecords[streamOpaque] = "y"
		case strings.HasPrefix(key, escapedAttr):
			h.PAXRecords[streamAttr+overlayAttr+strings.TrimPrefix(key, escapedAttr)] = string(value[:n])
		case !strings.HasPrefix(key, overlayAttr):
			h.PAXRecords[streamAttr+key] = string(value[:n])
		}
	}
	return nil
}

// regular writes a plain file, or another name of one.
func (p *packer) regular(name string, h *tar.Header, st unix.Stat_t) error {
	inode := [2]uint64{st.Dev, st.Ino}
	if first, ok := p.seen[inode]; ok {
		h.Typeflag, h.Linkname, h.PAXRecords = tar.TypeLink, first, nil
		return p.tw.WriteHeader(h)
	}
	if st.Nlink > 1 {
		p.seen[inode] = h.Name
	}
	f, err := p.open(name, st)
	if err != nil {
		return &os.PathError{Op: "open", Path: h.Name, Err: err}
	}
	defer f.Close()
	h.Typeflag, h.Size = tar.TypeReg, st.Size
	const worth = 64 << 10
	if st.Size-st.Blocks*hosted.BlockSize >= worth {
		return p.sparse(f, h)
	}
	if err := p.tw.WriteHeader(h); err != nil {
		return err
	}
	return p.copy(p.tw, f, 0, st.Size)
}

// open opens a file, even if its owner has no permission to read it.
func (p *packer) open(name string, st unix.Stat_t) (*os.File, error) {
	const flags = os.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK
	f, err := os.OpenFile(name, flags, 0)
	if !errors.Is(err, os.ErrPermission) {
		return f, err
	}
	// Without the host's root the file is still ours. No running process inside could see the
	// change.
	if err := os.Chmod(name, 0o600); err != nil {
		return nil, err
	}
	f, err = os.OpenFile(name, flags, 0)
	if err != nil {
		return nil, err
	}
	return f, unix.Fchmod(int(f.Fd()), st.Mode&0o7777)
}

// copy copies a part of a file.
func (p *packer) copy(w io.Writer, f *os.File, from, size int64) error {
	r := &patient{p.ctx, io.NewSectionReader(f, from, size)}
	n, err := io.Copy(w, r)
	if err == nil && n != size {
		err = fmt.Errorf("%s: %w", f.Name(), io.ErrUnexpectedEOF)
	}
	return err
}

// patient is a reader that fails when a context has ended.
type patient struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (p *patient) Read(b []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, context.Cause(p.ctx)
	}
	return p.r.Read(b)
}
