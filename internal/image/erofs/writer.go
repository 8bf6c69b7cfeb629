package erofs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// BlockSize is the size of a block. Every file's contents start on a block, so that they can be
// mapped.
const BlockSize = 4096

// copySize is the unit in which contents are copied. Blocks of zeros are not
// written: they become holes of the image file.
const copySize = 256 << 10

// ErrTooLarge means that the image has no block numbers left (16 TiB).
var ErrTooLarge = errors.New("image larger than the format can describe")

// Writer writes one image into a file. Reserve and Fill are safe for concurrent use. Finish is
// called once, after all of them.
type Writer struct {
	f    *os.File
	bufs sync.Pool

	mu   sync.Mutex
	next uint64 // first free block
}

// NewWriter returns a Writer on an empty file. The caller still owns the file.
func NewWriter(f *os.File) *Writer {
	w := &Writer{f: f, next: 1} // block 0 holds the superblock
	w.bufs.New = func() any { b := make([]byte, copySize); return &b }
	return w
}

// Reserve reserves the place for the contents of a file of size bytes.
func (w *Writer) Reserve(size int64) (Extent, error) {
	if size < 0 {
		return Extent{}, fmt.Errorf("negative size %d", size)
	}
	if size == 0 {
		return Extent{}, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	blocks := (uint64(size) + BlockSize - 1) / BlockSize
	if w.next+blocks > math.MaxUint32 {
		return Extent{}, ErrTooLarge
	}
	e := Extent{block: uint32(w.next), Size: size}
	w.next += blocks
	return e, nil
}

// Fill copies the contents of a reserved extent from r. If r has fewer bytes, the error is
// [io.ErrUnexpectedEOF]. Fill returns the number of bytes copied.
func (w *Writer) Fill(e Extent, r io.Reader) (int64, error) {
	bufp := w.bufs.Get().(*[]byte)
	defer w.bufs.Put(bufp)
	for done := int64(0); done < e.Size; {
		buf := (*bufp)[:min(copySize, e.Size-done)]
		n, err := io.ReadFull(r, buf)
		if werr := w.writeSparse(buf[:n], e.Offset()+done); werr != nil {
			return done, werr
		}
		done += int64(n)
		if err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return done, err
		}
	}
	return e.Size, nil
}

var zeros [BlockSize]byte

// writeSparse writes p at off. It leaves out blocks that are all zero.
func (w *Writer) writeSparse(p []byte, off int64) error {
	start := 0 // of the run of blocks to write
	flush := func(end int) error {
		if end > start {
			if _, err := w.f.WriteAt(p[start:end], off+int64(start)); err != nil {
				return err
			}
		}
		return nil
	}
	for i := 0; i < len(p); i += BlockSize {
		end := min(i+BlockSize, len(p))
		if p[i] == 0 && bytes.Equal(p[i:end], zeros[:end-i]) {
			if err := flush(i); err != nil {
				return err
			}
			start = end
		}
	}
	return flush(len(p))
}

// Discard gives the disk space of contents without a name back to the disk. On a file system that
// can't do that, the bytes stay, unreachable.
func (w *Writer) Discard(e Extent) {
	if e.Size > 0 {
		_ = unix.Fallocate(int(w.f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE,
			e.Offset(), (e.Size+BlockSize-1)/BlockSize*BlockSize)
	}
}

// Reader reads back the contents of a filled extent.
func (w *Writer) Reader(e Extent) (*io.SectionReader, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// Zeros at the end were not written, so make the file reach past them. All writes lie below
	// next, so this cuts nothing off.
	if err := w.f.Truncate(int64(w.next) * BlockSize); err != nil {
		return nil, err
	}
	return io.NewSectionReader(w.f, e.Offset(), e.Size), nil
}

// FillAt copies a part of the contents of a reserved extent. at is its place in them.
func (w *Writer) FillAt(e Extent, at int64, part []byte) error {
	if at < 0 || int64(len(part)) > e.Size-at {
		return fmt.Errorf("%d bytes at %d of an extent of %d", len(part), at, e.Size)
	}
	return w.writeSparse(part, e.Offset()+at)
}

// Finish writes the metadata of the tree, the superblock last, and returns the
// size of the image. It does not fsync.
func (w *Writer) Finish(root *Node, built time.Time) (int64, error) {
	size, first, err := w.FinishMetadata(root, built)
	if err == nil {
		_, err = w.f.WriteAt(first, 0)
	}
	if err != nil {
		return 0, err
	}
	return size, nil
}

// FinishMetadata is Finish, but does not write the first block, with the superblock: it returns the
// block. Until somebody writes it, the file is no image. So an image whose contents are not all
// there can't be taken for a whole one.
func (w *Writer) FinishMetadata(root *Node, built time.Time) (size int64, first []byte, err error) {
	if !root.IsDir() {
		return 0, nil, errors.New("the root is not a directory")
	}
	m := &meta{w: w, start: w.next, built: built}
	if err := m.plan(root); err != nil {
		return 0, nil, err
	}
	if err := m.write(root); err != nil {
		return 0, nil, err
	}
	size = int64(m.end) * BlockSize
	if err := w.f.Truncate(size); err != nil {
		return 0, nil, err
	}
	return size, m.superblock(), nil
}
