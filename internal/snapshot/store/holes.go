package store

import (
	"os"
	"sync"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sys/unix"
)

// The disk and the memory of a virtual machine are files of gigabytes that mostly consist of holes.
// To read them all would take longer than everything else of a pause.

// empty reports whether a part of a file is a hole. It is false where the filesystem does not tell.
func empty(f *os.File, off, end int64) bool {
	at, err := unix.Seek(int(f.Fd()), off, unix.SEEK_DATA)
	return err == unix.ENXIO || err == nil && at >= end
}

// zeroSum returns the checksum of a block of this many zeros.
func zeroSum(size int64) uint64 {
	if size == sumBlock {
		return zeroBlock()
	}
	return sumZeros(size)
}

var zeroBlock = sync.OnceValue(func() uint64 { return sumZeros(sumBlock) })

func sumZeros(size int64) uint64 {
	var h xxhash.Digest
	h.Reset()
	for size > 0 {
		n := min(size, int64(len(zeros)))
		_, _ = h.Write(zeros[:n])
		size -= n
	}
	return h.Sum64()
}
