package store

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/carrel-dev/carrel"
)

// Evict drops all hot copies that may be dropped.
func (s *Store) Evict() { s.evict(1 << 62) }

// ParsePacked reads a packed manifest.
func ParsePacked(b []byte, id carrel.SnapshotID) error {
	_, err := parsePacked(b, id)
	return err
}

// ParseManifest reads a manifest.
func ParseManifest(b []byte, id carrel.SnapshotID) error {
	_, err := parseManifest(b, id)
	return err
}

// ParseIndex reads a pack's index.
func ParseIndex(b []byte) error {
	_, err := parseIndex(b)
	return err
}

// Seal appends the right checksum to an index.
func Seal(b []byte) []byte { return binary.BigEndian.AppendUint64(b, xxhash.Sum64(b)) }

// OpenChunk unpacks stored as a chunk of raw bytes.
func OpenChunk(stored []byte, raw uint32) (int, error) {
	if raw == 0 || raw > chunkMax || len(stored) == 0 || len(stored) > int(raw) {
		return 0, nil // refused by parseChunk
	}
	c := chunk{stored: uint32(len(stored)), raw: raw, sum: sha256.Sum256(stored)}
	b, err := c.open(stored, make([]byte, 0, chunkMax))
	return len(b), err
}

// Cut cuts bytes into pieces.
func Cut(b []byte, pages bool) (sizes []int) {
	for len(b) > 0 {
		n := cut(b, pages)
		sizes = append(sizes, n)
		b = b[n:]
	}
	return sizes
}
