package build

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/bundle"
	"github.com/carrel-dev/carrel/internal/image"
)

// badArchive is an error about an archive that a caller sent.
func badArchive(format string, args ...any) error {
	return &carrel.Error{Op: opBuild, Kind: carrel.Invalid, Field: "context",
		Err: fmt.Errorf(format, args...)}
}

// normalize copies an archive as a plain tar stream. It refuses names that leave the archive's
// root, and everything beyond the bounds. It leaves out devices.
func normalize(ctx context.Context, w io.Writer, r io.Reader) error {
	plain, done, err := decompress(bufio.NewReaderSize(ctxReader{ctx, r}, 256<<10))
	if err != nil {
		return err
	}
	defer done()
	out := bufio.NewWriterSize(w, 256<<10)
	tw := tar.NewWriter(out)
	tr := tar.NewReader(plain)
	var total int64
	for entries := 0; ; entries++ {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return streamError(ctx, err)
		}
		if entries >= maxCtxEntries {
			return &carrel.Error{Op: opBuild, Kind: carrel.Exhausted, Field: "context",
				Err: fmt.Errorf("the archive has more than %d entries", maxCtxEntries)}
		}
		if h.Size > 0 && (h.Size > maxContext || total+h.Size > maxContext) {
			return &carrel.Error{Op: opBuild, Kind: carrel.Exhausted, Field: "context",
				Err: fmt.Errorf("the archive has more than %d GiB", maxContext>>30)}
		}
		total += max(h.Size, 0)
		keep, err := cleanHeader(h)
		if err != nil {
			return badArchive("entry %.200q: %w", h.Name, err)
		}
		if keep == nil {
			continue
		}
		if err := tw.WriteHeader(keep); err != nil {
			return writeError(err)
		}
		if keep.Typeflag != tar.TypeReg {
			continue
		}
		if _, err := io.Copy(tw, tr); err != nil {
			return streamError(ctx, err)
		}
	}
	// the checksums after the last entry
	if _, err := io.Copy(io.Discard, plain); err != nil && !errors.Is(err, gzip.ErrHeader) {
		return streamError(ctx, err)
	}
	if err := errors.Join(tw.Close(), out.Flush()); err != nil {
		return writeError(err)
	}
	return nil
}

// writeError is an error of this machine's disk.
func writeError(err error) error {
	return &carrel.Error{Op: opBuild, Kind: carrel.Exhausted, Field: "disk", Err: err,
		Hint: "free some disk space under the data directory"}
}

// streamError is an error of reading an archive.
func streamError(ctx context.Context, err error) error {
	var ce *carrel.Error
	var pe *fs.PathError
	switch {
	case errors.As(err, &ce):
		return err
	case errors.As(err, &pe):
		return writeError(err)
	case ctx.Err() != nil:
		return &carrel.Error{Op: opBuild, Kind: carrel.TimedOut, Err: context.Cause(ctx)}
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return badArchive("the archive ends in the middle")
	}
	return badArchive("the archive is damaged: %w", err)
}

// cleanHeader checks an entry and returns what is kept of it; nil is nothing.
func cleanHeader(h *tar.Header) (*tar.Header, error) {
	name, err := cleanName(h.Name)
	if err != nil {
		return nil, err
	}
	out := &tar.Header{Name: name, Mode: h.Mode & 0o7777, Uid: h.Uid, Gid: h.Gid, ModTime: h.ModTime,
		Format: tar.FormatPAX}
	switch h.Typeflag {
	case tar.TypeReg, '\x00', tar.TypeGNUSparse:
		if h.Size < 0 {
			return nil, errors.New("a negative size")
		}
		out.Typeflag, out.Size = tar.TypeReg, h.Size
	case tar.TypeDir:
		out.Typeflag = tar.TypeDir
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) > 4095 || strings.ContainsRune(h.Linkname, 0) {
			return nil, errors.New("a link to a path that can't be")
		}
		out.Typeflag, out.Linkname = tar.TypeSymlink, h.Linkname
	case tar.TypeLink:
		target, err := cleanName(h.Linkname)
		if err != nil {
			return nil, fmt.Errorf("a hard link to %w", err)
		}
		out.Typeflag, out.Linkname = tar.TypeLink, target
	case tar.TypeXGlobalHeader, tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return nil, nil
	default:
		return nil, fmt.Errorf("unknown type %q", h.Typeflag)
	}
	return out, nil
}

// cleanName checks a name in an archive.
func cleanName(name string) (string, error) {
	switch {
	case len(name) > 4096:
		return "", fmt.Errorf("a path of %d bytes", len(name))
	case strings.HasPrefix(name, "/"):
		return "", errors.New("an absolute path")
	case strings.ContainsRune(name, 0):
		return "", errors.New("a path with a NUL byte")
	}
	for _, part := range strings.Split(name, "/") {
		if part == ".." {
			return "", errors.New(`a path with ".."`)
		}
		if len(part) > 255 {
			return "", fmt.Errorf("a name of %d bytes", len(part))
		}
	}
	return path.Clean(name), nil
}

// decompress undoes the compression of a stream, which its first bytes tell.
func decompress(r *bufio.Reader) (out io.Reader, done func(), err error) {
	head, err := r.Peek(4)
	if err != nil && err != io.EOF {
		return nil, nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, nil, badArchive("the archive is damaged: %w", err)
		}
		return z, func() { _ = z.Close() }, nil
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(64<<20))
		if err != nil {
			return nil, nil, badArchive("the archive is damaged: %w", err)
		}
		return z, z.Close, nil
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		return nil, nil, badArchive("a zip archive holds no owners and links: send a tar stream")
	}
	return r, func() {}, nil
}

// ctxReader is a reader that fails when a context ends.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (c ctxReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}

// archiveTree is the content of a plain tar file, by name.
type archiveTree struct {
	file *os.File
	root *archiveNode
}

// archiveNode is a file of an archive.
type archiveNode struct {
	info image.File
	at   int64 // of its content in the file
	kids map[string]*archiveNode
}

var _ bundle.Tree = (*archiveTree)(nil)

// openArchive reads the index of a file that normalize wrote.
func openArchive(name string) (_ *archiveTree, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	t := &archiveTree{file: f, root: &archiveNode{info: image.File{Mode: fs.ModeDir | 0o755}}}
	tr := tar.NewReader(f)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return t, nil
		}
		if err != nil {
			return nil, err
		}
		at, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, err
		}
		if err := t.add(h, at); err != nil {
			return nil, badArchive("entry %.200q: %w", h.Name, err)
		}
	}
}

// add adds an entry. A later entry replaces an earlier one of its name.
func (t *archiveTree) add(h *tar.Header, at int64) error {
	parts := strings.Split(h.Name, "/")
	dir := t.root
	if h.Name == "." {
		return nil
	}
	for _, p := range parts[:len(parts)-1] {
		kid := dir.kids[p]
		if kid == nil || !kid.info.Mode.IsDir() {
			if kid != nil {
				return errors.New("a file on its way is no directory")
			}
			kid = &archiveNode{info: image.File{Mode: fs.ModeDir | 0o755, Modified: h.ModTime}}
			dir.put(p, kid)
		}
		dir = kid
	}
	n := &archiveNode{at: at, info: image.File{Mode: h.FileInfo().Mode(), UID: uint32(h.Uid),
		GID: uint32(h.Gid), Size: h.Size, Modified: h.ModTime}}
	switch h.Typeflag {
	case tar.TypeSymlink:
		n.info.Target = h.Linkname
	case tar.TypeLink:
		to := t.find(h.Linkname)
		if to == nil || to.info.Mode.IsDir() {
			return fmt.Errorf("a hard link to %.200q, which is not a file before it", h.Linkname)
		}
		n = to
	case tar.TypeDir:
		if old := dir.kids[parts[len(parts)-1]]; old != nil && old.info.Mode.IsDir() {
			old.info = n.info
			return nil
		}
	}
	dir.put(parts[len(parts)-1], n)
	return nil
}

func (n *archiveNode) put(name string, kid *archiveNode) {
	if n.kids == nil {
		n.kids = map[string]*archiveNode{}
	}
	n.kids[name] = kid
}

// find finds a node; nil is none.
func (t *archiveTree) find(name string) *archiveNode {
	n := t.root
	for _, p := range strings.Split(name, "/") {
		if p == "." || p == "" {
			continue
		}
		if n = n.kids[p]; n == nil {
			return nil
		}
	}
	return n
}

// Lstat implements bundle.Tree.
func (t *archiveTree) Lstat(name string) (image.File, error) {
	n := t.find(name)
	if n == nil {
		return image.File{}, &fs.PathError{Op: "lstat", Path: name, Err: fs.ErrNotExist}
	}
	return n.info, nil
}

// List implements bundle.Tree.
func (t *archiveTree) List(name string) ([]string, error) {
	n := t.find(name)
	if n == nil {
		return nil, &fs.PathError{Op: "list", Path: name, Err: fs.ErrNotExist}
	}
	out := make([]string, 0, len(n.kids))
	for k := range n.kids {
		out = append(out, k)
	}
	return out, nil
}

// Open implements bundle.Tree.
func (t *archiveTree) Open(name string) (io.ReadCloser, error) {
	n := t.find(name)
	if n == nil || !n.info.Mode.IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return io.NopCloser(io.NewSectionReader(t.file, n.at, n.info.Size)), nil
}

// Close closes the file.
func (t *archiveTree) Close() error { return t.file.Close() }
