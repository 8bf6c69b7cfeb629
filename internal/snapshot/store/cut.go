package store

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

const (
	pageSize   = 4096
	pieceMin   = 1 << 10
	pieceMax   = 16 << 10
	pieceBits  = 12 // pieces are 4 KiB longer than the least, on average
	chunkBytes = 64 << 10
	chunkMax   = chunkBytes + pieceMax
)

// pieceID tells pieces apart.
type pieceID [16]byte

// piece is a run of bytes, the unit in which equal content is found.
type piece struct {
	id   pieceID
	size uint32
}

// idOf computes a piece's identity.
func idOf(b []byte) (id pieceID) {
	sum := sha256.Sum256(b)
	copy(id[:], sum[:])
	return id
}

// sampled reports whether a piece is one of the samples by which packs are found.
func (id pieceID) sampled() bool { return id[15]&31 == 0 }

// hook is the part of a sampled piece's identity that is kept in memory.
func (id pieceID) hook() uint64 { return binary.LittleEndian.Uint64(id[:8]) }

// paged reports whether a file consists of whole pages, as a guest's memory does. Equal parts of
// two such files begin at page borders.
func paged(size int64) bool { return size > 0 && size%pageSize == 0 }

// cut returns the size of the first piece of b. b is not empty.
func cut(b []byte, pages bool) int {
	if pages {
		return min(len(b), pageSize)
	}
	if len(b) <= pieceMin {
		return len(b)
	}
	end := min(len(b), pieceMax)
	var h uint64
	for i := pieceMin - 64; i < end; i++ {
		h = h<<1 + gear[b[i]]
		if i >= pieceMin && bits.LeadingZeros64(h) >= pieceBits {
			return i + 1
		}
	}
	return end
}

// gear holds the random numbers of a gear hash. After 64 more bytes a byte no longer has any
// influence. The numbers must never change, or no content packed before is found again.
var gear = func() (g [256]uint64) {
	for i := range g {
		sum := sha256.Sum256([]byte{'c', 'a', 'r', 'r', 'e', 'l', byte(i)})
		g[i] = binary.BigEndian.Uint64(sum[:])
	}
	return g
}()

var zeros [pieceMax]byte

// isZero reports whether b is all zeros. b is no longer than a piece.
func isZero(b []byte) bool { return string(b) == string(zeros[:len(b)]) }
