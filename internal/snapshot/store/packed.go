package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

// A packed manifest is a line of text, the length of its head, the head in JSON, a
// body of varints (chunks, then the extents of each file) and the SHA-256 of it all.
const (
	packedMagic   = "carrel packed snapshot\n"
	packedVersion = 1
	maxPacked     = 512 << 20 // bytes of a packed manifest
	packBytes     = 16 << 20  // size of a pack; it is built in memory
	maxPack       = 64 << 20  // largest valid pack
	maxFileSize   = 1 << 50
)

// packedHead is the head of a packed manifest.
type packedHead struct {
	Version  int               `json:"version"`
	Manifest snapshot.Manifest `json:"manifest"`
	Origin   string            `json:"origin"` // the store that wrote it
	Added    int64             `json:"added"`  // bytes that the snapshot added to the store
	Packs    []packRef         `json:"packs"`
	Chunks   int               `json:"chunks"`
}

// packRef is a pack that holds some of a snapshot's content.
type packRef struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

// chunk is the place of a chunk. It is stored without compression when stored equals raw.
type chunk struct {
	pack   uint32 // number in packedHead.Packs
	off    uint32
	stored uint32
	raw    uint32
	sum    [sha256.Size]byte // of the bytes as stored
}

// extent is a part of a file: a range of a chunk, or zeros.
type extent struct {
	chunk int32 // −1 for zeros
	off   uint32
	size  int64
}

// packed is a packed manifest.
type packed struct {
	packedHead
	chunks []chunk
	files  [][]extent // as Manifest.Files
}

func manifestBlob(id carrel.SnapshotID) string { return "manifests/" + string(id) }
func packBlob(name string) string              { return "packs/" + name }
func deadBlob(name string) string              { return "dead/" + name }

// encode makes the bytes of a packed manifest.
func (p *packed) encode() ([]byte, error) {
	p.Version, p.Chunks = packedVersion, len(p.chunks)
	head, err := json.Marshal(p.packedHead)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, len(packedMagic)+len(head)+48*len(p.chunks)+1024)
	b = append(b, packedMagic...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(head)))
	b = append(b, head...)
	for _, c := range p.chunks {
		for _, v := range []uint32{c.pack, c.off, c.stored, c.raw} {
			b = binary.AppendUvarint(b, uint64(v))
		}
		b = append(b, c.sum[:]...)
	}
	for _, list := range p.files {
		b = binary.AppendUvarint(b, uint64(len(list)))
		for _, x := range list {
			b = binary.AppendUvarint(b, uint64(x.chunk+1))
			if x.chunk >= 0 {
				b = binary.AppendUvarint(b, uint64(x.off))
			}
			b = binary.AppendUvarint(b, uint64(x.size))
		}
	}
	sum := sha256.Sum256(b)
	b = append(b, sum[:]...)
	if len(b) > maxPacked {
		return nil, invalid("the packed manifest is larger than %d bytes", maxPacked)
	}
	return b, nil
}

// parseHead reads the head of a packed manifest and returns the body. It must be the manifest of
// id.
func parseHead(b []byte, id carrel.SnapshotID) (packedHead, []byte, error) {
	var h packedHead
	rest, ok := bytes.CutPrefix(b, []byte(packedMagic))
	if !ok || len(rest) < 4+sha256.Size {
		return h, nil, invalid("this is not a packed manifest, or not a whole one")
	}
	if sum := sha256.Sum256(b[:len(b)-sha256.Size]); string(sum[:]) != string(b[len(b)-sha256.Size:]) {
		return h, nil, invalid("the packed manifest is damaged: its SHA-256 is another")
	}
	n := binary.BigEndian.Uint32(rest)
	rest = rest[4 : len(rest)-sha256.Size]
	if int64(n) > int64(len(rest)) {
		return h, nil, invalid("the packed manifest's head is said to have %d bytes", n)
	}
	head, body := rest[:n], rest[n:]
	var v struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(head, &v); err != nil {
		return h, nil, invalid("the packed manifest's head is not JSON: %w", err)
	}
	if v.Version > packedVersion {
		return h, nil, &carrel.Error{Kind: carrel.Invalid, Hint: "use the newer carrel that wrote it", Err: errFuture(v.Version)}
	}
	if err := json.Unmarshal(head, &h); err != nil {
		return h, nil, invalid("the packed manifest's head: %w", err)
	}
	return h, body, h.check(id, len(body))
}

// check returns an error that says what is wrong with a head, or nil.
func (h *packedHead) check(id carrel.SnapshotID, body int) error {
	if h.Version != packedVersion {
		return invalid("the packed manifest has the unknown version %d", h.Version)
	}
	if err := checkManifest(h.Manifest, id); err != nil {
		return err
	}
	if h.Added < 0 {
		return invalid("the packed manifest says that it added %d bytes", h.Added)
	}
	if h.Chunks < 0 || h.Chunks > body/(sha256.Size+4) {
		return invalid("the packed manifest says that it has %d chunks, in %d bytes", h.Chunks, body)
	}
	seen := map[string]bool{}
	for _, p := range h.Packs {
		if !validPack(p.Name) || seen[p.Name] {
			return invalid("the packed manifest names the pack %.80q", p.Name)
		}
		seen[p.Name] = true
		if p.Size <= 0 || p.Size > maxPack {
			return invalid("pack %s has the impossible size %d", p.Name, p.Size)
		}
	}
	return nil
}

// validPack reports whether a pack may have this name: a machine, a dash, letters.
func validPack(name string) bool { return len(name) <= 64 && len(name) > 2 && validName(name) }

// parsePacked reads a packed manifest. It must be the manifest of id. parsePacked trusts none of
// its values.
func parsePacked(b []byte, id carrel.SnapshotID) (*packed, error) {
	h, body, err := parseHead(b, id)
	if err != nil {
		return nil, err
	}
	p := &packed{packedHead: h, chunks: make([]chunk, h.Chunks), files: make([][]extent, len(h.Manifest.Files))}
	r := &varints{b: body}
	for i := range p.chunks {
		if err := p.parseChunk(r, i); err != nil {
			return nil, err
		}
	}
	for i, f := range h.Manifest.Files {
		if f.Size > maxFileSize {
			return nil, invalid("file %q has the impossible size %d", f.Name, f.Size)
		}
		if p.files[i], err = p.parseExtents(r, f); err != nil {
			return nil, err
		}
	}
	if r.bad || len(r.b) != 0 {
		return nil, invalid("the packed manifest's body does not end where it should")
	}
	return p, nil
}

func (p *packed) parseChunk(r *varints, i int) error {
	pack, off, stored, raw := r.next(), r.next(), r.next(), r.next()
	if pack >= uint64(len(p.Packs)) {
		return invalid("chunk %d is in pack %d of %d", i, pack, len(p.Packs))
	}
	if raw == 0 || raw > chunkMax || stored == 0 || stored > raw {
		return invalid("chunk %d of %d bytes is stored in %d", i, raw, stored)
	}
	if size := uint64(p.Packs[pack].Size); off > size || stored > size-off {
		return invalid("chunk %d lies outside of pack %s", i, p.Packs[pack].Name)
	}
	p.chunks[i] = chunk{pack: uint32(pack), off: uint32(off), stored: uint32(stored), raw: uint32(raw)}
	copy(p.chunks[i].sum[:], r.bytes(sha256.Size))
	return nil
}

func (p *packed) parseExtents(r *varints, f snapshot.File) ([]extent, error) {
	n := r.next()
	if n > uint64(len(r.b)/2) {
		return nil, invalid("file %q is said to have %d parts", f.Name, n)
	}
	list := make([]extent, n)
	var size int64
	for i := range list {
		x := extent{chunk: -1}
		c := r.next()
		if c > uint64(len(p.chunks)) {
			return nil, invalid("file %q has a part of chunk %d of %d", f.Name, c, len(p.chunks))
		}
		if c > 0 {
			x.chunk = int32(c - 1)
			off := r.next()
			if off > chunkMax {
				return nil, invalid("file %q has a part outside of chunk %d", f.Name, x.chunk)
			}
			x.off = uint32(off)
		}
		length := r.next()
		if length == 0 || length > uint64(f.Size-size) {
			return nil, invalid("the parts of file %q do not come to its size", f.Name)
		}
		x.size = int64(length)
		if x.chunk >= 0 && int64(x.off)+x.size > int64(p.chunks[x.chunk].raw) {
			return nil, invalid("file %q has a part outside of chunk %d", f.Name, x.chunk)
		}
		size += x.size
		list[i] = x
	}
	if r.bad || size != f.Size {
		return nil, invalid("the parts of file %q do not come to its size", f.Name)
	}
	return list, nil
}

// varints reads a body.
type varints struct {
	b   []byte
	bad bool
}

func (r *varints) next() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.b, r.bad = nil, true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *varints) bytes(n int) []byte {
	if len(r.b) < n {
		r.b, r.bad = nil, true
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

// readPacked reads this machine's copy of a packed manifest. If the copy is damaged, it reads the
// blob.
func (s *Store) readPacked(ctx context.Context, id carrel.SnapshotID) (*packed, error) {
	b, err := os.ReadFile(s.path(dirPacked, string(id)))
	if err == nil {
		var p *packed
		if p, err = parsePacked(b, id); err == nil {
			return p, nil
		}
		s.log.Warn("a damaged packed manifest", "snapshot", id, "error", err)
	}
	p, ferr := s.fetchPacked(ctx, id)
	if ferr != nil {
		return nil, errors.Join(err, ferr)
	}
	return p, nil
}

// fetchPacked reads a packed manifest from the blobs.
func (s *Store) fetchPacked(ctx context.Context, id carrel.SnapshotID) (*packed, error) {
	b, err := s.fetchManifest(ctx, id)
	if err != nil {
		return nil, err
	}
	return parsePacked(b, id)
}

func (s *Store) fetchManifest(ctx context.Context, id carrel.SnapshotID) ([]byte, error) {
	s.mu.Lock()
	gone := s.gone[id]
	s.mu.Unlock()
	if gone {
		return nil, &carrel.Error{Kind: carrel.NotFound, Err: fmt.Errorf("no snapshot %s", id)}
	}
	b, err := s.readBlob(ctx, manifestBlob(id))
	if carrel.KindOf(err) == carrel.NotFound {
		return nil, &carrel.Error{Kind: carrel.NotFound, Err: fmt.Errorf("no snapshot %s", id)}
	}
	return b, err
}
