package store

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sync/errgroup"

	"github.com/carrel-dev/carrel/internal/snapshot"
)

// The checksum of a file consists of the checksums of its blocks. So blocks are computed in
// parallel, and an error names the damaged block. It finds faults of disks and of programs, not
// forgery: an attacker who can write in the store's directory can also write the checksums.
const (
	sumBlock  = 4 << 20
	sumPrefix = "xxh64/4m:"
)

// blocks is the number of blocks of a file.
func blocks(size int64) int64 { return (size + sumBlock - 1) / sumBlock }

// encodeSums writes checksums as the text in a manifest.
func encodeSums(sums []uint64) string {
	b := make([]byte, 0, 8*len(sums))
	for _, s := range sums {
		b = binary.BigEndian.AppendUint64(b, s)
	}
	return sumPrefix + base64.RawStdEncoding.EncodeToString(b)
}

// decodeSums reads checksums from the text in a manifest.
func decodeSums(f snapshot.File) ([]uint64, error) {
	text, ok := strings.CutPrefix(f.Sum, sumPrefix)
	if !ok {
		return nil, invalid("file %q: a checksum of unknown form", f.Name)
	}
	b, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil || int64(len(b)) != 8*blocks(f.Size) {
		return nil, invalid("file %q: a checksum that does not fit %d bytes", f.Name, f.Size)
	}
	sums := make([]uint64, len(b)/8)
	for i := range sums {
		sums[i] = binary.BigEndian.Uint64(b[8*i:])
	}
	return sums, nil
}

// buffers are the buffers for reading. They are small enough to stay in a processor's cache, so
// that the data passes through main memory once.
var buffers = sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}

// sumOf computes the checksum of one block of f.
func sumOf(f *os.File, size, block int64) (uint64, error) {
	off, end := block*sumBlock, min(size, (block+1)*sumBlock)
	if empty(f, off, end) {
		if info, err := f.Stat(); err != nil || info.Size() < end {
			return 0, cmp.Or(err, io.ErrUnexpectedEOF) // it is shorter
		}
		return zeroSum(end - off), nil
	}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	var h xxhash.Digest
	h.Reset()
	for off < end {
		n, err := f.ReadAt((*buf)[:min(int64(len(*buf)), end-off)], off)
		if n == 0 && err != nil {
			return 0, err
		}
		_, _ = h.Write((*buf)[:n])
		off += int64(n)
	}
	return h.Sum64(), nil
}

// sumFile is a file and the checksums of its blocks.
type sumFile struct {
	f    *os.File
	size int64
	sums []uint64
}

// sumAll computes all checksums with the given number of goroutines.
func sumAll(ctx context.Context, files []*sumFile, workers int) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	for _, sf := range files {
		sf.sums = make([]uint64, blocks(sf.size))
		for b := range sf.sums {
			if gctx.Err() != nil {
				break
			}
			g.Go(func() (err error) {
				sf.sums[b], err = sumOf(sf.f, sf.size, int64(b))
				return err
			})
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// verify compares a directory's files with a manifest.
func verify(ctx context.Context, dir string, m snapshot.Manifest, workers int) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	var files []*os.File
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	for _, want := range m.Files {
		sums, err := decodeSums(want)
		if err != nil {
			return err
		}
		f, err := openExact(filepath.Join(dir, want.Name), want)
		if err != nil {
			// Goroutines that still run read the files, which are closed below.
			_ = g.Wait()
			return err
		}
		files = append(files, f)
		for b, sum := range sums {
			if gctx.Err() != nil {
				break
			}
			g.Go(func() error {
				got, err := sumOf(f, want.Size, int64(b))
				if err != nil {
					return fmt.Errorf("file %q: %w", want.Name, err)
				}
				if got != sum {
					return invalid("file %q is damaged between bytes %d and %d", want.Name, int64(b)*sumBlock, min(want.Size, int64(b+1)*sumBlock))
				}
				return nil
			})
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// openExact opens a file of a snapshot. It must have the size that the manifest names.
func openExact(path string, want snapshot.File) (*os.File, error) {
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil, invalid("file %q is missing", want.Name)
	} else if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && (!fi.Mode().IsRegular() || fi.Size() != want.Size) {
		err = invalid("file %q has %d bytes instead of %d", want.Name, fi.Size(), want.Size)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
