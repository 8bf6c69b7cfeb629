package archive

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/bzip2"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image/erofs"
	"github.com/carrel-dev/carrel/internal/image/stargz"
)

// Prefixes of names that have a special meaning in layers.
const (
	whiteout       = ".wh."
	whiteoutMeta   = ".wh..wh."
	whiteoutOpaque = ".wh..wh..opq"
)

// Tar adds a tar stream, plain or compressed, on top of the tree. With whiteouts set it is a layer
// of an image, whose marks remove files of the layers below.
func (t *Tree) Tar(ctx context.Context, r io.Reader, whiteouts bool) error {
	return t.tar(ctx, r, whiteouts, io.Discard)
}

// tar is Tar. In addition it writes the uncompressed stream to plain.
func (t *Tree) tar(ctx context.Context, r io.Reader, whiteouts bool, plain io.Writer) error {
	t.touched = nil
	if whiteouts {
		t.touched = map[place]struct{}{}
	}
	stream, done, err := decompress(ctxReader{ctx, r})
	if err != nil {
		return streamError(err)
	}
	defer done()
	// Besides contents there are headers and padding: at most three blocks an entry. Only long
	// names need more, and they are bounded too.
	stream = io.TeeReader(stream, plain)
	if whiteouts { // layers are files, which never block
		a := readAhead(stream)
		defer a.close()
		stream = a
	}
	all := &countReader{r: stream, limit: t.limits.MaxBytes + t.limits.MaxEntries*4096}
	tr := tar.NewReader(all)
	first := true
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return drain(all)
		}
		if err != nil {
			if short := all.n < 512 && errors.Is(err, io.ErrUnexpectedEOF); first &&
				(short || errors.Is(err, tar.ErrHeader)) {
				return notAnArchive(err)
			}
			return streamError(err)
		}
		first = false
		if whiteouts && t.stargz && stargz.IsOurs(h.Name) {
			continue
		}
		if err := t.entry(h, whiteouts, t.copier(tr)); err != nil {
			return entryError(h.Name, err)
		}
	}
}

// drain reads the rest after the last entry, so that checksums are verified. Other bytes after a
// gzip stream are ignored, as gzip does.
func drain(r io.Reader) error {
	if _, err := io.Copy(io.Discard, r); err != nil && !errors.Is(err, gzip.ErrHeader) {
		return streamError(err)
	}
	return nil
}

func notAnArchive(err error) error {
	return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "archive", Err: fmt.Errorf("not a tar archive: %w", err),
		Hint: "give a tarball of a root filesystem (also .gz, .zst or .bz2), an OCI layout or the output of docker save"}
}

func isSource(err error) bool {
	var s sourceError
	return errors.As(err, &s)
}

// streamError gives a Kind to an error of reading the stream.
func streamError(err error) error {
	var ce *carrel.Error
	switch {
	case errors.As(err, &ce):
		return err
	case isSource(err):
		return Classify(op, err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return invalid("the archive ends in the middle")
	}
	return invalid("the archive is damaged: %w", err)
}

// entryError adds the entry's name to an error.
func entryError(name string, err error) error {
	var ce *carrel.Error
	const most = 200
	if len(name) > most {
		name = name[:most] + "…"
	}
	switch {
	case errors.As(err, &ce):
		if ce.Kind == carrel.Exhausted && ce.Field != "" { // one of Limits
			named := *ce
			named.Err = fmt.Errorf("entry %q: %w", name, ce.Err)
			return &named
		}
		return err
	case isSource(err), isDisk(err):
		return Classify(op, err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return invalid("entry %q: the archive ends in the middle of it", name)
	}
	return invalid("entry %q: %w", name, err)
}

// isDisk reports whether an error came from writing the image.
func isDisk(err error) bool {
	var pe *fs.PathError
	return errors.As(err, &pe) || errors.Is(err, erofs.ErrTooLarge)
}

// copier returns a function that fills extents with the content of the present entry.
func (t *Tree) copier(r io.Reader) func(erofs.Extent) error {
	return func(e erofs.Extent) error {
		copied, err := t.w.Fill(e, r)
		t.meter.Add(copied)
		return err
	}
}

// entry adds one entry. fill fills the place of a regular file's contents.
func (t *Tree) entry(h *tar.Header, whiteouts bool, fill func(erofs.Extent) error) error {
	if h.Typeflag == tar.TypeXGlobalHeader || h.Typeflag == 'V' { // comments and volume labels
		return nil
	}
	if err := t.count(); err != nil {
		return err
	}
	parts, err := splitName(h.Name)
	if err != nil {
		return err
	}
	n, err := t.node(h)
	if err != nil || n == nil && h.Typeflag != tar.TypeLink {
		return err
	}
	if len(parts) == 0 {
		if !n.IsDir() {
			return errors.New("something other than a directory as the root")
		}
		t.Root.Mode, t.Root.UID, t.Root.GID = n.Mode, n.UID, n.GID
		t.Root.SetMtime(n.Mtime())
		return nil
	}
	dir, err := t.dir(parts[:len(parts)-1], true)
	if err != nil {
		return err
	}
	name := parts[len(parts)-1]
	if whiteouts && strings.HasPrefix(name, whiteout) {
		return t.whiteout(dir, name)
	}
	if h.Typeflag == tar.TypeLink {
		return t.link(dir, name, h.Linkname)
	}
	if n.Mode.IsRegular() {
		if n.Data, err = t.reserve(h.Size); err != nil {
			return err
		}
		if err := fill(n.Data); err != nil {
			return err
		}
	}
	t.put(dir, name, n)
	return nil
}

// whiteout carries out a mark in a layer.
func (t *Tree) whiteout(dir *erofs.Node, name string) error {
	switch {
	case name == whiteoutOpaque:
		t.hideChildren(dir)
	case strings.HasPrefix(name, whiteoutMeta): // other marks of old tools
	default:
		hidden := strings.TrimPrefix(name, whiteout)
		if hidden == "" || hidden == "." || hidden == ".." {
			return errors.New("a whiteout of no name")
		}
		t.hide(dir, hidden)
	}
	return nil
}

// link makes a hard link to an earlier entry.
func (t *Tree) link(dir *erofs.Node, name, target string) error {
	parts, err := splitName(target)
	if err != nil {
		return fmt.Errorf("a hard link to %w", err)
	}
	if len(parts) == 0 {
		return errors.New("a hard link to the root")
	}
	from, err := t.dir(parts[:len(parts)-1], false)
	if err != nil {
		return fmt.Errorf("hard link target: %w", err)
	}
	var n *erofs.Node
	if from != nil {
		n = from.Child(parts[len(parts)-1])
	}
	switch {
	case n == nil:
		return fmt.Errorf("a hard link to %q, which is not there", target)
	case n.IsDir():
		return fmt.Errorf("a hard link to the directory %q", target)
	}
	if dir.Child(name) != n {
		t.put(dir, name, n)
	}
	return nil
}

// node makes the node of a header. It returns nil for entries that are left out and for hard links.
func (t *Tree) node(h *tar.Header) (*erofs.Node, error) {
	if h.Uid < 0 || h.Uid > math.MaxUint32 || h.Gid < 0 || h.Gid > math.MaxUint32 {
		return nil, fmt.Errorf("an owner %d:%d that can't be", h.Uid, h.Gid)
	}
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "SCHILY.xattr.") {
			t.dropped.Xattrs++
			break
		}
	}
	n := &erofs.Node{UID: uint32(h.Uid), GID: uint32(h.Gid), Mode: permissions(h.Mode)}
	n.SetMtime(h.ModTime)
	switch h.Typeflag {
	case tar.TypeReg, '\x00', tar.TypeCont, tar.TypeGNUSparse:
		if strings.HasSuffix(h.Name, "/") { // the oldest tars write directories so
			n.Mode |= fs.ModeDir
		}
	case tar.TypeDir, 'D':
		n.Mode |= fs.ModeDir
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) > erofs.MaxTarget || strings.ContainsRune(h.Linkname, 0) {
			return nil, fmt.Errorf("a symbolic link to a path of %d bytes, or with a NUL byte", len(h.Linkname))
		}
		n.Mode, n.Target = fs.ModeSymlink|0o777, h.Linkname
	case tar.TypeFifo:
		n.Mode |= fs.ModeNamedPipe
	case tar.TypeChar, tar.TypeBlock:
		t.dropped.Devices++
		return nil, nil
	case tar.TypeLink:
		return nil, nil
	default:
		return nil, fmt.Errorf("an entry of unknown type %q", h.Typeflag)
	}
	return n, nil
}

func permissions(mode int64) fs.FileMode {
	m := fs.FileMode(mode & 0o777)
	if mode&0o4000 != 0 {
		m |= fs.ModeSetuid
	}
	if mode&0o2000 != 0 {
		m |= fs.ModeSetgid
	}
	if mode&0o1000 != 0 {
		m |= fs.ModeSticky
	}
	return m
}

// decompress recognises a stream's compression by its first bytes and undoes it. done releases its
// resources.
func decompress(r io.Reader) (out io.Reader, done func(), err error) {
	br := bufio.NewReaderSize(r, 256<<10)
	head, err := br.Peek(6)
	if err != nil && err != io.EOF {
		return nil, nil, err
	}
	nothing := func() {}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(br)
		if err != nil {
			return nil, nil, err
		}
		return z, func() { _ = z.Close() }, nil
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	case bytes.HasPrefix(head, []byte("BZh")):
		return bzip2.NewReader(br), nothing, nil
	case bytes.HasPrefix(head, []byte{0xfd, '7', 'z', 'X', 'Z', 0}):
		return nil, nil, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "archive",
			Err: errors.New("xz compression is not supported"), Hint: "unpack it first: xz -dc ARCHIVE | carrel template import NAME -"}
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		return nil, nil, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "archive",
			Err: errors.New("a zip archive holds no owners and links"), Hint: "unpack it and import the directory, or use tar"}
	case len(head) == 0:
		return nil, nil, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "archive", Err: errors.New("the archive is empty")}
	}
	return br, nothing, nil
}
