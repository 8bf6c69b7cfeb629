package store

import (
	"bytes"
	"context"
	"io"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/image"
)

const (
	samples    = 64      // blocks by which two images are compared at first
	sampleSize = 4096    // a block of the image
	shareStep  = 1 << 20 // bytes that are shared by one call
	shareFine  = 64 << 10
	// maxCompared is the number of templates with which a new one is compared.
	maxCompared = 256
	// An image is worth a try if one in leastEqual of its samples is in another one.
	leastEqual = 8
)

// share saves the space of what a new image has in common with others. If an image is equal, the
// new template gets a second link to its file, and share returns true. Otherwise the file system is
// asked to keep equal blocks at equal places once, if it can (XFS and Btrfs can, ext4 can't).
// Images over one base have its files at equal places, because a layer's files lie in the layer's
// order.
//
// An image never changes, so nobody notices. A failure only costs space.
func (s *Store) share(ctx context.Context, f *os.File, name string) (linked bool) {
	info, err := f.Stat()
	if err != nil {
		return false
	}
	best, most := "", samples/leastEqual-1
	for _, other := range s.imagePaths() {
		if ctx.Err() != nil {
			return false
		}
		o, err := os.Open(other)
		if err != nil {
			continue // just removed
		}
		equal, same := alike(f, o, info.Size())
		if same && contentsEqual(ctx, f, o) && linkOpen(o, name) == nil {
			_ = o.Close()
			return true
		}
		_ = o.Close()
		if equal > most {
			best, most = other, equal
		}
	}
	if best != "" {
		shareBlocks(ctx, best, f, info.Size())
	}
	return false
}

// imagePaths returns the files of the newest templates.
func (s *Store) imagePaths() []string {
	s.mu.Lock()
	all := make([]image.Image, 0, len(s.byID))
	for _, e := range s.byID {
		if e.Lazy == nil { // else it lacks contents
			all = append(all, e.Image)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b image.Image) int { return b.Created.Compare(a.Created) })
	paths := make([]string, 0, maxCompared)
	for _, e := range all[:min(len(all), maxCompared)] {
		paths = append(paths, e.Path)
	}
	return paths
}

// alike compares some blocks of two images. equal counts those that are equal and not empty. same
// says that the images may be equal as a whole.
func alike(a, b *os.File, size int64) (equal int, same bool) {
	info, err := b.Stat()
	if err != nil {
		return 0, false
	}
	same = info.Size() == size
	var x, y, zero [sampleSize]byte
	for i := range int64(samples) {
		off := min(size, info.Size()) / sampleSize * i / samples * sampleSize
		n, err := a.ReadAt(x[:], off)
		if err != nil && err != io.EOF {
			return equal, false
		}
		if m, _ := b.ReadAt(y[:], off); m != n || x != y {
			same = false
		} else if x != zero {
			equal++
		}
	}
	return equal, same
}

// contentsEqual compares two files as a whole.
func contentsEqual(ctx context.Context, a, b *os.File) bool {
	x, y := make([]byte, shareStep), make([]byte, shareStep)
	for off := int64(0); ctx.Err() == nil; off += shareStep {
		n, err := a.ReadAt(x, off)
		m, err2 := b.ReadAt(y, off)
		if n != m || !bytes.Equal(x[:n], y[:m]) || err != err2 {
			return false
		}
		if err != nil {
			return err == io.EOF
		}
	}
	return false
}

// linkOpen gives an open file one more name. It fails if the file has lost all others.
func linkOpen(f *os.File, name string) error {
	return unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(int(f.Fd())), unix.AT_FDCWD, name,
		unix.AT_SYMLINK_FOLLOW)
}

// shareBlocks makes f share the blocks that an older image has at the same places. The kernel
// compares them.
func shareBlocks(ctx context.Context, older string, f *os.File, size int64) {
	o, err := os.Open(older)
	if err != nil {
		return
	}
	defer o.Close()
	if info, err := o.Stat(); err != nil || info.Size() < size {
		if err != nil {
			return
		}
		size = info.Size()
	}
	for off := int64(0); off < size && ctx.Err() == nil; off += shareStep {
		n := min(shareStep, size-off)
		same, able := shareRange(o, f, off, n)
		if !able {
			return
		}
		for fine := off; !same && fine < off+n && ctx.Err() == nil; fine += shareFine {
			if _, able := shareRange(o, f, fine, min(shareFine, off+n-fine)); !able {
				return
			}
		}
	}
}

// shareRange shares one range. same says that all of it is shared now, able that the file system
// knows how.
func shareRange(from, to *os.File, off, n int64) (same, able bool) {
	for n > 0 {
		r := &unix.FileDedupeRange{Src_offset: uint64(off), Src_length: uint64(n),
			Info: []unix.FileDedupeRangeInfo{{Dest_fd: int64(to.Fd()), Dest_offset: uint64(off)}}}
		if err := unix.IoctlFileDedupeRange(int(from.Fd()), r); err != nil {
			return false, false
		}
		done := int64(r.Info[0].Bytes_deduped)
		switch {
		case r.Info[0].Status < 0:
			return false, false
		case r.Info[0].Status != unix.FILE_DEDUPE_RANGE_SAME || done == 0:
			return false, true
		}
		off, n = off+done, n-done
	}
	return true, true
}
