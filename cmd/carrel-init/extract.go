//go:build linux

package main

import (
	"archive/tar"
	"bufio"
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
	"github.com/carrel-dev/carrel/internal/driver/microvm/boot"
	"github.com/carrel-dev/carrel/internal/driver/sparsetar"
)

// Attributes of files. The overlay keeps its own under overlayAttr; those that a program set under
// this name lie one level deeper.
const (
	overlayAttr = "trusted.overlay."
	opaqueAttr  = "trusted.overlay.opaque"
	recordAttr  = "SCHILY.xattr."
	maxAttr     = 64 << 10 // bytes of one file's
)

// Sizes of an extraction.
const (
	tarBuffer   = 256 << 10
	sectorBytes = 512
	worthHole   = 64 << 10 // of holes, before a file is written as a sparse one
)

// extract writes the changes that a disk holds as a tar stream onto the other disk.
func extract() error {
	for _, disk := range []string{boot.ReadDisk, boot.TarDisk} {
		if err := await(disk); err != nil {
			return err
		}
	}
	if err := (mount{boot.ReadDisk, writeDir, "ext4", "", unix.MS_RDONLY | unix.MS_NODEV | unix.MS_NOSUID | unix.MS_NOEXEC}).make(); err != nil {
		return err
	}
	out, err := os.OpenFile(boot.TarDisk, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(out, tarBuffer)
	p := &packer{w: w, tw: tar.NewWriter(w), root: filepath.Join(writeDir, upperName), seen: map[uint64]string{}}
	err = filepath.WalkDir(p.root, p.walk)
	if err = errors.Join(err, p.tw.Close(), w.Flush(), out.Sync(), out.Close()); err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, boot.Extracted)
	return nil
}

// packer writes the upper layer of an overlay as a tar stream.
type packer struct {
	w    io.Writer
	tw   *tar.Writer
	root string
	seen map[uint64]string // files with several names, by inode
}

// walk is a fs.WalkDirFunc.
func (p *packer) walk(name string, _ fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(p.root, name)
	if err != nil {
		return err
	}
	if "/"+rel == driver.GuestMount {
		return fs.SkipDir // only the guest's mount point
	}
	return p.entry(name, rel)
}

// entry writes one file.
func (p *packer) entry(name, rel string) error {
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		return &os.PathError{Op: "lstat", Path: rel, Err: err}
	}
	h := &tar.Header{Name: rel, Format: tar.FormatPAX, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid),
		ModTime: time.Unix(st.Mtim.Unix()), PAXRecords: map[string]string{}}
	if err := attributes(name, h); err != nil {
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
			return nil // a device of the machine's, which means nothing elsewhere
		}
		h = &tar.Header{Name: rel, Typeflag: tar.TypeChar, Format: tar.FormatPAX}
	case unix.S_IFREG:
		return p.regular(name, h, st)
	default:
		return nil // block devices, and sockets without a listener
	}
	return p.tw.WriteHeader(h)
}

// attributes adds the attributes that a program may have set, and the mark of a directory that hides
// the template's.
func attributes(name string, h *tar.Header) error {
	b := make([]byte, maxAttr)
	n, err := unix.Llistxattr(name, b)
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "listxattr", Path: h.Name, Err: err}
	}
	value := make([]byte, maxAttr)
	for key := range strings.SplitSeq(strings.TrimSuffix(string(b[:n]), "\x00"), "\x00") {
		if key == "" || strings.Contains(key, "=") || strings.HasPrefix(key, "trusted.") && key != opaqueAttr {
			continue // no record can hold it, or it is the overlay's own
		}
		n, err := unix.Lgetxattr(name, key, value)
		if err != nil {
			return &os.PathError{Op: "getxattr", Path: h.Name, Err: err}
		}
		if key != opaqueAttr || string(value[:n]) == "y" {
			h.PAXRecords[recordAttr+key] = string(value[:n])
		}
	}
	return nil
}

// regular writes a plain file, or another name of one.
func (p *packer) regular(name string, h *tar.Header, st unix.Stat_t) error {
	if first, ok := p.seen[st.Ino]; ok {
		h.Typeflag, h.Linkname, h.PAXRecords = tar.TypeLink, first, nil
		return p.tw.WriteHeader(h)
	}
	if st.Nlink > 1 {
		p.seen[st.Ino] = h.Name
	}
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	h.Typeflag, h.Size = tar.TypeReg, st.Size
	if st.Size-st.Blocks*sectorBytes >= worthHole {
		return p.sparse(f, h)
	}
	if err := p.tw.WriteHeader(h); err != nil {
		return err
	}
	return copyPart(p.tw, f, 0, st.Size)
}

// sparse writes a file without its holes.
func (p *packer) sparse(f *os.File, h *tar.Header) error {
	var pieces []sparsetar.Piece
	for at := int64(0); at < h.Size; {
		begin, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break
		}
		if err != nil {
			return os.NewSyscallError("lseek", err)
		}
		end, err := unix.Seek(int(f.Fd()), begin, unix.SEEK_HOLE)
		if err != nil {
			return os.NewSyscallError("lseek", err)
		}
		at = min(end, h.Size)
		pieces = append(pieces, sparsetar.Piece{At: begin, Size: at - begin})
	}
	if err := p.tw.Flush(); err != nil {
		return err
	}
	head, data, err := sparsetar.Head(h, pieces)
	if err != nil {
		return err
	}
	if _, err := p.w.Write(head); err != nil {
		return err
	}
	for _, piece := range pieces {
		if err := copyPart(p.w, f, piece.At, piece.Size); err != nil {
			return err
		}
	}
	_, err = p.w.Write(make([]byte, sparsetar.Padding(data)))
	return err
}

// copyPart copies a part of a file, all of it.
func copyPart(w io.Writer, f *os.File, from, size int64) error {
	n, err := io.Copy(w, io.NewSectionReader(f, from, size))
	if err == nil && n != size {
		err = fmt.Errorf("%s: %w", f.Name(), io.ErrUnexpectedEOF)
	}
	return err
}
