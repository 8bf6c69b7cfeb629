// Package delta keeps an image as its difference from another one, the base.
//
// A template that was made from another one has the other's contents at the same places (see
// package erofs, Extend). So most of its blocks are in the base's file already. A delta holds the
// other blocks. [Apply] makes the image of both again, byte by byte.
//
// # The file
//
//	"carreldl"                 8 bytes
//	a Zstandard stream of:
//	  size of the image        8 bytes, little-endian
//	  gap, count               two varints: blocks that are the base's, and blocks that follow here
//	  count blocks             4,096 bytes each
//	  ...
//	  0, 0                     the end
//
// Behind its end, a base counts as zeros. The stream has a checksum of its own. Who applies a delta
// checks the result as well: a delta does not say which base it belongs to.
package delta

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/zstd"
)

const (
	magic     = "carreldl"
	blockSize = 4096
	// ChunkSize is the unit in which Apply reads, checks and writes.
	ChunkSize = 1 << 20

	maxWindow = 8 << 20
)

// ErrForm means that a file is no delta, or that an image has a form of which none can be made.
var ErrForm = errors.New("not a delta of an image")

// Write writes the difference between an image and a base to out.
func Write(ctx context.Context, out io.Writer, base, img *os.File) error {
	info, err := img.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	if size%blockSize != 0 {
		return fmt.Errorf("%w: an image of %d bytes", ErrForm, size)
	}
	if _, err := io.WriteString(out, magic); err != nil {
		return err
	}
	z, err := zstd.NewWriter(out, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(maxWindow))
	if err != nil {
		return err
	}
	w := &writer{out: z}
	w.number8(uint64(size))
	a, b := make([]byte, ChunkSize), make([]byte, ChunkSize)
	for at := int64(0); at < size && w.err == nil; at += ChunkSize {
		if err := ctx.Err(); err != nil {
			return errors.Join(err, z.Close())
		}
		n := int(min(ChunkSize, size-at))
		if _, err := io.ReadFull(io.NewSectionReader(img, at, int64(n)), a[:n]); err != nil {
			return errors.Join(err, z.Close())
		}
		if err := readBase(base, b[:n], at); err != nil {
			return errors.Join(err, z.Close())
		}
		w.chunk(a[:n], b[:n])
	}
	w.number(0)
	w.number(0)
	return errors.Join(w.err, z.Close())
}

// readBase reads a part of a base. Behind its end are zeros.
func readBase(base *os.File, p []byte, at int64) error {
	n, err := base.ReadAt(p, at)
	clear(p[n:])
	if err == io.EOF {
		return nil
	}
	return err
}

// writer writes the stream of a delta. It keeps the first error.
type writer struct {
	out io.Writer
	gap uint64 // blocks since the last run
	err error
}

func (w *writer) write(p []byte) {
	if w.err == nil {
		_, w.err = w.out.Write(p)
	}
}

func (w *writer) number(n uint64) { w.write(binary.AppendUvarint(nil, n)) }

func (w *writer) number8(n uint64) { w.write(binary.LittleEndian.AppendUint64(nil, n)) }

// chunk writes the blocks of a that differ from those of b.
func (w *writer) chunk(a, b []byte) {
	for len(a) > 0 {
		n := 0 // bytes that differ
		for n < len(a) && !bytes.Equal(a[n:n+blockSize], b[n:n+blockSize]) {
			n += blockSize
		}
		if n > 0 {
			w.number(w.gap)
			w.number(uint64(n / blockSize))
			w.write(a[:n])
			w.gap = 0
			a, b = a[n:], b[n:]
			continue
		}
		w.gap++
		a, b = a[blockSize:], b[blockSize:]
	}
}

// Apply makes an image of a base and a delta. It calls check with each chunk of the image, and then
// writes the chunk to the file to. Blocks of zeros become holes. If to is nil, Apply only checks.
func Apply(ctx context.Context, base, delta, to *os.File,
	check func(at int64, chunk []byte) error) error {
	r, size, err := newReader(delta)
	if err != nil {
		return err
	}
	defer r.z.Close()
	if to != nil {
		if err := to.Truncate(size); err != nil {
			return err
		}
	}
	buf := make([]byte, ChunkSize)
	for at := int64(0); at < size; at += ChunkSize {
		if err := ctx.Err(); err != nil {
			return err
		}
		chunk := buf[:min(ChunkSize, size-at)]
		err := readBase(base, chunk, at)
		if err == nil {
			err = r.overlay(chunk)
		}
		if err == nil {
			err = check(at, chunk)
		}
		if err == nil && to != nil {
			err = writeSparse(to, chunk, at)
		}
		if err != nil {
			return err
		}
	}
	return r.end()
}

// reader reads the stream of a delta.
type reader struct {
	z     *zstd.Decoder
	in    *bufio.Reader
	gap   int64 // blocks before the next run
	count int64 // blocks left of it
	left  int64 // blocks left of the image
	atEnd bool
}

func newReader(f *os.File) (*reader, int64, error) {
	head := make([]byte, len(magic))
	if _, err := f.ReadAt(head, 0); err != nil || string(head) != magic {
		return nil, 0, errors.Join(ErrForm, err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	z, err := zstd.NewReader(io.NewSectionReader(f, int64(len(magic)), info.Size()),
		zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, 0, err
	}
	r := &reader{z: z, in: bufio.NewReaderSize(z, 64<<10)}
	var size [8]byte
	if _, err := io.ReadFull(r.in, size[:]); err != nil {
		z.Close()
		return nil, 0, bad(err)
	}
	n := int64(binary.LittleEndian.Uint64(size[:]))
	if n < 0 || n%blockSize != 0 {
		z.Close()
		return nil, 0, ErrForm
	}
	r.left = n / blockSize
	return r, n, nil
}

// bad is the error of a stream that ends or breaks.
func bad(err error) error { return fmt.Errorf("%w: %w", ErrForm, err) }

// next reads where the next run is.
func (r *reader) next() error {
	gap, err := binary.ReadUvarint(r.in)
	if err != nil {
		return bad(err)
	}
	count, err := binary.ReadUvarint(r.in)
	if err != nil {
		return bad(err)
	}
	left := uint64(r.left)
	switch {
	case gap == 0 && count == 0:
		r.atEnd = true
	case count == 0 || gap > left || count > left-gap:
		return ErrForm
	}
	r.gap, r.count = int64(gap), int64(count)
	return nil
}

// overlay puts the delta's blocks into the next chunk of the image.
func (r *reader) overlay(chunk []byte) error {
	for blocks := int64(len(chunk) / blockSize); blocks > 0; {
		if r.gap == 0 && r.count == 0 && !r.atEnd {
			if err := r.next(); err != nil {
				return err
			}
		}
		n := min(r.gap, blocks)
		switch {
		case r.atEnd:
			n = blocks
		case r.gap > 0:
			r.gap -= n
		default:
			n = min(r.count, blocks)
			if _, err := io.ReadFull(r.in, chunk[:n*blockSize]); err != nil {
				return bad(err)
			}
			r.count -= n
		}
		chunk = chunk[n*blockSize:]
		blocks -= n
		r.left -= n
	}
	return nil
}

// end checks that nothing is left, and so the stream's checksum.
func (r *reader) end() error {
	if !r.atEnd {
		if err := r.next(); err != nil {
			return err
		}
	}
	if _, err := r.in.ReadByte(); !r.atEnd || err != io.EOF {
		return errors.Join(ErrForm, err)
	}
	return nil
}

var zeros [blockSize]byte

// writeSparse writes a chunk without its blocks of zeros.
func writeSparse(f *os.File, p []byte, at int64) error {
	for len(p) > 0 {
		n := 0 // bytes to write
		for n < len(p) && !bytes.Equal(p[n:n+blockSize], zeros[:]) {
			n += blockSize
		}
		if n > 0 {
			if _, err := f.WriteAt(p[:n], at); err != nil {
				return err
			}
		} else {
			n = blockSize
		}
		p, at = p[n:], at+int64(n)
	}
	return nil
}
