package sim

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"strings"
	"sync"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver/sparsetar"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// tarStream makes a tar stream of differences while it is read. It uses no goroutine, so a reader
// that stops leaves nothing behind.
type tarStream struct {
	mu    sync.Mutex
	delta *vfs.Delta
	tw    *tar.Writer
	out   bytes.Buffer // made, but not read yet
	body  *fileBody    // of the present entry, or nil
	err   error
}

var _ io.ReadCloser = (*tarStream)(nil)

func newTarStream(d *vfs.Delta) *tarStream {
	s := &tarStream{delta: d}
	s.tw = tar.NewWriter(&s.out)
	return s
}

// Read implements io.Reader.
func (s *tarStream) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.out.Len() == 0 && s.err == nil && len(p) > 0 {
		s.err = s.more()
	}
	if s.out.Len() > 0 && !errors.Is(s.err, os.ErrClosed) {
		return s.out.Read(p)
	}
	return 0, s.err
}

// Close implements io.Closer.
func (s *tarStream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.body != nil {
		s.body.stop()
	}
	s.err, s.delta, s.body, s.out = os.ErrClosed, nil, nil, bytes.Buffer{}
	return nil
}

// more makes the next piece: a part of a file, an entry, or the end.
func (s *tarStream) more() error {
	if s.body != nil {
		done, err := s.body.next()
		if done || err != nil {
			s.body.stop()
			s.body = nil
		}
		return err
	}
	x, err := s.delta.Next()
	switch {
	case err == io.EOF:
		if err := s.tw.Close(); err != nil {
			return err
		}
		return io.EOF // after the rest of out
	case err != nil:
		return &carrel.Error{Op: "read snapshot", Kind: carrel.Unsupported, Err: fmt.Errorf("a tar stream has no such names: %w", err)}
	}
	return s.entry(x)
}

// devices are the minor numbers of the existing devices, as on Linux.
var devices = map[string]int64{"null": 3, "zero": 5, "full": 7, "random": 9}

// entry writes an entry's header and begins its contents.
func (s *tarStream) entry(x vfs.Difference) error {
	h := &tar.Header{Name: x.Path, Format: tar.FormatPAX, Typeflag: tar.TypeReg}
	if x.Gone { // overlayfs' form of a removed file
		h.Typeflag = tar.TypeChar
		return s.tw.WriteHeader(h)
	}
	i := x.Info
	h.Uid, h.Gid, h.ModTime, h.Mode = int(i.UID), int(i.GID), i.Modified, unixMode(i.Mode)
	for k, v := range x.Attrs {
		if k != "" && !strings.ContainsAny(k, "=\x00") { // no PAX record can hold the others
			if h.PAXRecords == nil {
				h.PAXRecords = map[string]string{}
			}
			h.PAXRecords["SCHILY.xattr.user."+k] = v
		}
	}
	switch {
	case i.Mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, x.Path+"/"
		if x.Path == "" {
			h.Name = "./"
		}
	case i.Mode&fs.ModeSymlink != 0:
		h.Typeflag, h.Linkname = tar.TypeSymlink, i.Target
	case i.Mode&fs.ModeNamedPipe != 0 && x.Link == "":
		h.Typeflag = tar.TypeFifo
	case x.Device != "":
		h.Typeflag, h.Devmajor, h.Devminor = tar.TypeChar, 1, devices[x.Device]
	case x.Link != "":
		h.Typeflag, h.Linkname, h.PAXRecords = tar.TypeLink, x.Link, nil
	default:
		return s.file(h, x)
	}
	return s.tw.WriteHeader(h)
}

// file begins a plain file. If it has large holes, they are left out.
func (s *tarStream) file(h *tar.Header, x vfs.Difference) error {
	const worth = 64 << 10
	if x.Info.Size-x.Info.Used < worth {
		h.Size = x.Info.Size
		if err := s.tw.WriteHeader(h); err != nil {
			return err
		}
		s.body = newFileBody(x, s.tw, x.Info.Size, true)
		return nil
	}
	if err := s.tw.Flush(); err != nil { // writes the padding of the previous entry
		return err
	}
	var pieces []sparsetar.Piece
	for off, data := range x.Blocks() {
		pieces = append(pieces, sparsetar.Piece{At: off, Size: int64(len(data))})
	}
	h.Size = x.Info.Size
	head, size, err := sparsetar.Head(h, pieces)
	if err != nil {
		return &carrel.Error{Op: "read snapshot", Kind: carrel.Unsupported, Err: err}
	}
	s.out.Write(head)
	s.body = newFileBody(x, &s.out, size, false)
	return nil
}

// fileBody writes a file's contents block by block.
type fileBody struct {
	w     io.Writer
	pull  func() (int64, []byte, bool)
	stop  func()
	at    int64
	size  int64
	dense bool
}

func newFileBody(x vfs.Difference, w io.Writer, size int64, dense bool) *fileBody {
	b := &fileBody{w: w, size: size, dense: dense}
	b.pull, b.stop = iter.Pull2(x.Blocks())
	return b
}

// next writes one block. If holes are written out, it first writes the hole before the block.
func (b *fileBody) next() (done bool, err error) {
	off, data, ok := b.pull()
	switch {
	case !ok && b.dense:
		return true, b.zeros(b.size - b.at)
	case !ok: // the data's own padding
		return true, b.zeros(sparsetar.Padding(b.at))
	case b.dense:
		if err := b.zeros(off - b.at); err != nil {
			return true, err
		}
	}
	n, err := b.w.Write(data)
	b.at += int64(n)
	return false, err
}

// zeros writes a small hole, of about a block at most.
func (b *fileBody) zeros(n int64) error {
	if n > 0 {
		b.at += n
		_, err := b.w.Write(make([]byte, n))
		return err
	}
	return nil
}

// unixMode converts a mode to tar's form.
func unixMode(m fs.FileMode) int64 {
	out := int64(m.Perm())
	for bit, unix := range map[fs.FileMode]int64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&bit != 0 {
			out |= unix
		}
	}
	return out
}
