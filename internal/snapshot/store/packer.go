package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/carrel-dev/carrel/internal/snapshot"
)

// maxKnown bounds the number of pieces in memory while a snapshot is packed.
const maxKnown = 4 << 20

// loc is the place of a piece: in a chunk of a pack that was read, or, with pack −1, in one of the
// snapshot's own chunks.
type loc struct {
	pack  int32 // in packer.looked
	chunk int32
	off   uint32
}

// packer packs one snapshot.
type packer struct {
	s     *Store
	ctx   context.Context
	enc   *zstd.Encoder
	avoid map[string]bool  // packs that are about to be deleted
	bad   map[string]error // packs that must be distrusted

	known  map[pieceID]loc
	looked []*indexed // packs whose pieces are known
	names  []string   // the names of looked
	has    map[string]bool

	out     packed
	packNo  map[string]uint32  // in out.Packs
	chunkNo map[[2]int32]int32 // from looked's chunks to numbers in out.chunks
	cur     []byte             // the chunk that is being filled
	curNo   int32              // its number in out.chunks
	pieces  []piece            // its pieces
	pack    []byte             // the pack that is being filled
	name    string             // its name
	index   indexed            // its content
	stored  []byte             // room for a compressed chunk
	added   int64              // bytes of packs
}

// newPacker returns a packer. It does not use the packs in avoid.
func (s *Store) newPacker(ctx context.Context, m snapshot.Manifest, avoid map[string]bool) (*packer, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, err
	}
	p := &packer{s: s, ctx: ctx, enc: enc, avoid: avoid, bad: map[string]error{},
		known: map[pieceID]loc{}, has: map[string]bool{}, packNo: map[string]uint32{}, chunkNo: map[[2]int32]int32{}}
	p.out.Manifest, p.out.Origin = m, s.machine
	return p, nil
}

// segment packs a part of a file. The caller has verified it.
func (p *packer) segment(b []byte, pages bool, list []extent) ([]extent, error) {
	cuts := make([]piece, 0, len(b)/pageSize+1)
	for rest := b; len(rest) > 0; {
		n := cut(rest, pages)
		c := piece{size: uint32(n)}
		if !isZero(rest[:n]) {
			c.id = idOf(rest[:n])
		}
		cuts = append(cuts, c)
		rest = rest[n:]
	}
	if err := p.look(cuts); err != nil {
		return nil, err
	}
	for _, c := range cuts {
		x, err := p.place(c, b[:c.size])
		if err != nil {
			return nil, err
		}
		b = b[c.size:]
		list = appendExtent(list, x)
	}
	return list, nil
}

// appendExtent appends an extent. If it continues the last one, it extends that one.
func appendExtent(list []extent, x extent) []extent {
	if n := len(list); n > 0 {
		last := &list[n-1]
		if last.chunk == x.chunk && (x.chunk < 0 || int64(last.off)+last.size == int64(x.off)) {
			last.size += x.size
			return list
		}
	}
	return append(list, x)
}

// look reads the index of packs that hold some of these pieces, so that all their pieces are known.
// It passes over packs that are damaged.
func (p *packer) look(cuts []piece) error {
	for _, name := range p.s.packs.find(cuts) {
		if p.has[name] || p.avoid[name] {
			continue
		}
		p.has[name] = true
		in, err := p.s.packs.read(name)
		if err != nil {
			p.s.log.Warn("read a pack index", "pack", name, "error", err)
			continue
		}
		if ok, err := p.trusts(name, in); err != nil {
			return err
		} else if !ok {
			continue
		}
		if len(p.known) > maxKnown {
			clear(p.known)
		}
		number, next := int32(len(p.looked)), 0
		for c, count := range in.counts {
			var off uint32
			for range count {
				pc := in.pieces[next]
				next++
				if _, ok := p.known[pc.id]; !ok {
					p.known[pc.id] = loc{pack: number, chunk: int32(c), off: off}
				}
				off += pc.size
			}
		}
		in.pieces, in.counts = nil, nil
		p.looked, p.names = append(p.looked, in), append(p.names, name)
	}
	return nil
}

// place returns the place of one piece. If the piece is not stored yet, it adds it to the current
// chunk.
func (p *packer) place(c piece, b []byte) (extent, error) {
	if c.id == (pieceID{}) {
		return extent{chunk: -1, size: int64(c.size)}, nil
	}
	if l, ok := p.known[c.id]; ok {
		return extent{chunk: p.number(l), off: l.off, size: int64(c.size)}, nil
	}
	if len(p.cur)+len(b) > chunkMax || len(p.cur) >= chunkBytes {
		if err := p.closeChunk(); err != nil {
			return extent{}, err
		}
	}
	if len(p.cur) == 0 {
		p.curNo = int32(len(p.out.chunks))
		p.out.chunks = append(p.out.chunks, chunk{})
	}
	l := loc{pack: -1, chunk: p.curNo, off: uint32(len(p.cur))}
	p.known[c.id] = l
	p.cur = append(p.cur, b...)
	p.pieces = append(p.pieces, c)
	return extent{chunk: l.chunk, off: l.off, size: int64(c.size)}, nil
}

// number returns a chunk's number in the manifest.
func (p *packer) number(l loc) int32 {
	if l.pack < 0 {
		return l.chunk
	}
	key := [2]int32{l.pack, l.chunk}
	if n, ok := p.chunkNo[key]; ok {
		return n
	}
	c := p.looked[l.pack].chunks[l.chunk]
	c.pack = p.ref(p.names[l.pack], p.looked[l.pack].size)
	n := int32(len(p.out.chunks))
	p.out.chunks = append(p.out.chunks, c)
	p.chunkNo[key] = n
	return n
}

// ref returns a pack's number in the manifest.
func (p *packer) ref(name string, size int64) uint32 {
	if n, ok := p.packNo[name]; ok {
		return n
	}
	n := uint32(len(p.out.Packs))
	p.out.Packs = append(p.out.Packs, packRef{Name: name, Size: size})
	p.packNo[name] = n
	return n
}

// closeChunk compresses the current chunk and adds it to the pack.
func (p *packer) closeChunk() error {
	if len(p.cur) == 0 {
		return nil
	}
	if err := p.ctx.Err(); err != nil {
		return err
	}
	p.stored = p.enc.EncodeAll(p.cur, p.stored[:0])
	stored := p.stored
	if len(stored) >= len(p.cur) {
		stored = p.cur
	}
	if len(p.pack)+len(stored) > packBytes {
		if err := p.closePack(); err != nil {
			return err
		}
	}
	if p.name == "" {
		p.name = p.s.newPackName()
	}
	c := chunk{off: uint32(len(p.pack)), stored: uint32(len(stored)), raw: uint32(len(p.cur)), sum: sha256.Sum256(stored)}
	p.pack = append(p.pack, stored...)
	p.index.chunks = append(p.index.chunks, c)
	p.index.counts = append(p.index.counts, uint32(len(p.pieces)))
	p.index.pieces = append(p.index.pieces, p.pieces...)
	c.pack = p.ref(p.name, 0)
	p.out.chunks[p.curNo] = c
	p.cur, p.pieces = p.cur[:0], p.pieces[:0]
	return nil
}

// newPackName returns a name that no pack of any store has.
func (s *Store) newPackName() string {
	return s.machine + "-" + strings.ToLower(rand.Text())
}

// closePack puts the current pack into the blobs.
func (p *packer) closePack() error {
	if len(p.pack) == 0 {
		return nil
	}
	p.index.size = int64(len(p.pack))
	if err := p.s.putPack(p.ctx, p.name, p.pack, &p.index); err != nil {
		return err
	}
	p.out.Packs[p.packNo[p.name]].Size = p.index.size
	p.added += p.index.size
	p.pack, p.name, p.index = p.pack[:0], "", indexed{}
	return nil
}

// putPack makes a pack durable, and then adds it to the index.
func (s *Store) putPack(ctx context.Context, name string, b []byte, in *indexed) error {
	if err := step("pack.blob"); err != nil {
		return err
	}
	if err := s.opts.Blobs.Put(ctx, packBlob(name), bytes.NewReader(b), int64(len(b))); err != nil {
		return err
	}
	if err := step("pack.stored"); err != nil {
		return err
	}
	s.check.vouch(ctx, name)
	if err := s.packs.add(name, in); err != nil {
		return err
	}
	s.mu.Lock()
	s.packed += in.size
	s.mu.Unlock()
	return step("pack.indexed")
}

// finish puts the last chunk and pack, and returns the packed manifest.
func (p *packer) finish() (*packed, error) {
	if err := p.closeChunk(); err != nil {
		return nil, err
	}
	if err := p.closePack(); err != nil {
		return nil, err
	}
	p.out.Added = p.added
	return &p.out, nil
}

// close releases the packer's memory.
func (p *packer) close() { _ = p.enc.Close() }
