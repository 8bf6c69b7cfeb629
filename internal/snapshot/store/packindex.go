package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/cespare/xxhash/v2"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
)

// indexMagic begins an index file. After it come the pack's size, its chunks (each with its number
// of pieces), the pieces in order, and a checksum of the whole file.
const indexMagic = "carrel pack index 1\n"

// indexed is the content of a pack's index file.
type indexed struct {
	size   int64
	chunks []chunk // pack is not set
	counts []uint32
	pieces []piece
}

// packIndex knows this store's packs and finds the packs that hold given pieces.
type packIndex struct {
	dir   string
	log   *slog.Logger
	size  map[string]int64 // of each pack
	hooks map[uint64]uint32
	names []string // names by the numbers in hooks; "" when the pack is gone
}

func newPackIndex(dir string, log *slog.Logger) *packIndex {
	return &packIndex{dir: dir, log: log, size: map[string]int64{}}
}

// load finds the packs. sizes come from a cache. It returns the bytes of all packs.
func (x *packIndex) load(sizes map[string]int64) (int64, error) {
	list, err := os.ReadDir(x.dir)
	var total int64
	for _, de := range list {
		name := de.Name()
		if !validPack(name) {
			_ = os.Remove(filepath.Join(x.dir, name)) // left by an interrupted write
			continue
		}
		size, ok := sizes[name]
		if !ok {
			in, err := x.read(name)
			if err != nil {
				x.log.Warn("a damaged pack index", "pack", name, "error", err)
				_ = os.Remove(filepath.Join(x.dir, name))
				continue
			}
			size = in.size
		}
		x.size[name] = size
		total += size
	}
	return total, err
}

// sizes returns the size of each pack.
func (x *packIndex) sizes() map[string]int64 { return x.size }

// read reads one index file.
func (x *packIndex) read(name string) (*indexed, error) {
	b, err := os.ReadFile(filepath.Join(x.dir, name))
	if err != nil {
		return nil, err
	}
	return parseIndex(b)
}

// parseIndex reads the bytes of an index file.
func parseIndex(b []byte) (*indexed, error) {
	rest, ok := bytes.CutPrefix(b, []byte(indexMagic))
	if !ok || len(rest) < 8+4+8 {
		return nil, invalid("not a pack index")
	}
	if xxhash.Sum64(b[:len(b)-8]) != binary.BigEndian.Uint64(b[len(b)-8:]) {
		return nil, invalid("a damaged pack index")
	}
	in := &indexed{size: int64(binary.BigEndian.Uint64(rest))}
	n := int(binary.BigEndian.Uint32(rest[8:]))
	rest = rest[12 : len(rest)-8]
	const perChunk = 4*4 + sha256.Size
	if in.size <= 0 || in.size > maxPack || n > len(rest)/perChunk {
		return nil, invalid("a pack index of impossible numbers")
	}
	in.chunks, in.counts = make([]chunk, n), make([]uint32, n)
	pieces := 0
	for i := range in.chunks {
		c := &in.chunks[i]
		c.off, c.stored, c.raw = binary.BigEndian.Uint32(rest), binary.BigEndian.Uint32(rest[4:]), binary.BigEndian.Uint32(rest[8:])
		in.counts[i] = binary.BigEndian.Uint32(rest[12:])
		copy(c.sum[:], rest[16:])
		rest = rest[perChunk:]
		if int64(c.off)+int64(c.stored) > in.size || c.raw == 0 || c.raw > chunkMax || in.counts[i] > c.raw {
			return nil, invalid("a pack index of impossible numbers")
		}
		pieces += int(in.counts[i])
	}
	const perPiece = 16 + 4
	if len(rest) != pieces*perPiece {
		return nil, invalid("a pack index of impossible numbers")
	}
	in.pieces = make([]piece, pieces)
	for i := range in.pieces {
		copy(in.pieces[i].id[:], rest)
		in.pieces[i].size = binary.BigEndian.Uint32(rest[16:])
		rest = rest[perPiece:]
	}
	return in, in.check()
}

// check checks that the pieces fill their chunks.
func (in *indexed) check() error {
	next := 0
	for i, c := range in.chunks {
		var sum uint64
		for range in.counts[i] {
			sum += uint64(in.pieces[next].size)
			next++
		}
		if sum != uint64(c.raw) {
			return invalid("a pack index of impossible numbers")
		}
	}
	return nil
}

// encode makes the bytes of an index file.
func (in *indexed) encode() []byte {
	b := make([]byte, 0, len(indexMagic)+24+48*len(in.chunks)+20*len(in.pieces))
	b = append(b, indexMagic...)
	b = binary.BigEndian.AppendUint64(b, uint64(in.size))
	b = binary.BigEndian.AppendUint32(b, uint32(len(in.chunks)))
	for i, c := range in.chunks {
		for _, v := range []uint32{c.off, c.stored, c.raw, in.counts[i]} {
			b = binary.BigEndian.AppendUint32(b, v)
		}
		b = append(b, c.sum[:]...)
	}
	for _, p := range in.pieces {
		b = append(b, p.id[:]...)
		b = binary.BigEndian.AppendUint32(b, p.size)
	}
	return binary.BigEndian.AppendUint64(b, xxhash.Sum64(b))
}

// add adds a pack to the index. The pack must be durable in the blobs.
func (x *packIndex) add(name string, in *indexed) error {
	if err := atomicfile.Write(filepath.Join(x.dir, name), in.encode(), 0o600); err != nil {
		return err
	}
	x.size[name] = in.size
	if x.hooks != nil {
		x.hook(name, in)
	}
	return nil
}

// remove forgets a pack, durably.
func (x *packIndex) remove(name string) error {
	delete(x.size, name)
	for i, n := range x.names {
		if n == name {
			x.names[i] = ""
		}
	}
	if err := os.Remove(filepath.Join(x.dir, name)); err != nil {
		if os.IsNotExist(err) {
			return nil
		}
		return err
	}
	return atomicfile.SyncDir(x.dir)
}

// hook adds a pack's sampled pieces to the samples. It also adds its first piece, so that small
// packs are found.
func (x *packIndex) hook(name string, in *indexed) {
	number := uint32(len(x.names))
	x.names = append(x.names, name)
	for i, p := range in.pieces {
		if i == 0 || p.id.sampled() {
			x.hooks[p.id.hook()] = number
		}
	}
}

// open reads the samples of all packs, once.
func (x *packIndex) open() {
	if x.hooks != nil {
		return
	}
	x.hooks = map[uint64]uint32{}
	for name := range x.size {
		in, err := x.read(name)
		if err != nil {
			if carrel.KindOf(err) != carrel.Invalid && !os.IsNotExist(err) {
				x.log.Warn("read a pack index", "pack", name, "error", err)
			}
			continue
		}
		x.hook(name, in)
	}
}

// find returns the names of packs that hold any of the pieces.
func (x *packIndex) find(pieces []piece) []string {
	x.open()
	seen := map[uint32]bool{}
	var names []string
	for _, p := range pieces {
		if n, ok := x.hooks[p.id.hook()]; ok && !seen[n] {
			seen[n] = true
			if x.names[n] != "" {
				names = append(names, x.names[n])
			}
		}
	}
	return names
}
