package store

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"slices"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

// wasteful reports whether so little of a pack is in use that rewriting it is worth it.
func wasteful(size, live int64) bool { return live < size/2 && size-live >= 64<<10 }

// place is the place of a chunk.
type place struct {
	pack string
	off  uint32
}

// movedPiece is the new place of a piece of an old chunk.
type movedPiece struct {
	off, size uint32 // in the old chunk
	to        loc    // in rewriter.p.out.chunks
}

// rewriter copies the used pieces of some packs to new packs.
type rewriter struct {
	p     *packer
	moved map[place][]movedPiece
}

// rewrite frees the unused room of packs of which little is in use. It first writes new packs, then
// the manifests, and then removes the old packs. If it is interrupted at any point, it leaves at
// most packs that no snapshot uses.
func (g *collector) rewrite(ctx context.Context) error {
	s := g.s
	p, err := s.newPacker(ctx, snapshot.Manifest{}, nil)
	if err != nil {
		return err
	}
	defer p.close()
	r := &rewriter{p: p, moved: map[place][]movedPiece{}}
	var old []packRef
	users := map[carrel.SnapshotID]bool{}
	for name, size := range maps.Clone(s.packs.sizes()) {
		uses := g.uses[name]
		if uses == nil || !wasteful(size, uses.live()) || !g.mayMove(name) {
			continue
		}
		if err := step("gc.rewrite"); err != nil {
			return err
		}
		done, err := r.copyPack(ctx, name, size, uses)
		if err != nil {
			return err
		}
		if !done {
			continue
		}
		old = append(old, packRef{Name: name, Size: size})
		for _, id := range g.users[name] {
			users[id] = true
		}
	}
	if len(old) == 0 {
		return nil
	}
	if _, err := p.finish(); err != nil {
		return err
	}
	if err := step("gc.rewritten"); err != nil {
		return err
	}
	if err := g.beginRewrite(users); err != nil {
		return err
	}
	for id := range users {
		if err := g.rewriteManifest(ctx, id, r); err != nil {
			return classify("rewrite manifest", id, err)
		}
	}
	if err := g.endRewrite(); err != nil {
		return err
	}
	for _, ref := range old {
		if err := g.deletePack(ctx, ref); err != nil {
			return err
		}
	}
	g.out.Freed -= p.added
	return nil
}

// mayMove reports whether only snapshots packed here use a pack. Only their manifests may be
// written again.
func (g *collector) mayMove(name string) bool {
	for _, id := range g.users[name] {
		if _, ok := g.manifests[id]; !ok {
			return false // deleted on another machine: it must stay deleted
		}
	}
	return !g.foreign[name]
}

// copyPack copies the used pieces of a pack. It returns false when the pack or its index is damaged
// and so can't be moved. The packer then distrusts the pack.
func (r *rewriter) copyPack(ctx context.Context, name string, size int64, uses packUse) (bool, error) {
	s := r.p.s
	in, err := s.packs.read(name)
	if err != nil {
		s.log.Warn("read a pack index", "pack", name, "error", err)
		return false, nil
	}
	rc, err := s.opts.Blobs.Get(ctx, packBlob(name), 0, -1)
	if err != nil {
		return false, err
	}
	b := make([]byte, size)
	_, err = io.ReadFull(rc, b)
	if err = unreadable(errors.Join(err, rc.Close())); carrel.KindOf(err) == carrel.Invalid ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		s.check.suspect(name, err)
		return false, nil
	} else if err != nil {
		return false, err
	}
	room := make([]byte, 0, chunkMax)
	next, found := 0, 0
	for i, c := range in.chunks {
		pieces := in.pieces[next : next+int(in.counts[i])]
		next += int(in.counts[i])
		use := uses[c.off]
		if use == nil {
			continue
		}
		content, err := c.open(b[c.off:][:c.stored], room)
		if err != nil {
			s.check.suspect(name, err)
			return false, nil
		}
		found++
		if err := r.copyPieces(place{name, c.off}, content, pieces, use); err != nil {
			return false, err
		}
	}
	return found == len(uses), nil
}

// copyPieces copies the used pieces of one chunk.
func (r *rewriter) copyPieces(from place, content []byte, pieces []piece, use *chunkUse) error {
	var off uint32
	for _, pc := range pieces {
		if use.has(off) {
			x, err := r.p.place(pc, content[off:off+pc.size])
			if err != nil {
				return err
			}
			r.moved[from] = append(r.moved[from], movedPiece{off: off, size: pc.size, to: loc{chunk: x.chunk, off: x.off}})
		}
		off += pc.size
	}
	return nil
}

// move makes a packed manifest use pieces in their new places.
func (r *rewriter) move(p *packed) error {
	n := &renumber{from: p, moved: &r.p.out, packs: map[string]uint32{}, numbers: map[[2]int32]int32{}}
	for i, list := range p.files {
		var out []extent
		for _, x := range list {
			if x.chunk < 0 {
				out = appendExtent(out, x)
				continue
			}
			c := p.chunks[x.chunk]
			pieces, ok := r.moved[place{p.Packs[c.pack].Name, c.off}]
			if !ok {
				x.chunk = n.number(p, x.chunk)
				out = appendExtent(out, x)
				continue
			}
			at, end := x.off, x.off+uint32(x.size)
			first, _ := slices.BinarySearchFunc(pieces, at, func(m movedPiece, off uint32) int { return cmp.Compare(m.off, off) })
			for _, m := range pieces[first:] {
				if at == end || m.off != at {
					break
				}
				out = appendExtent(out, extent{chunk: n.number(&r.p.out, m.to.chunk), off: m.to.off, size: int64(m.size)})
				at += m.size
			}
			if at != end {
				return invalid("file %q uses a part of a piece", p.Manifest.Files[i].Name)
			}
		}
		p.files[i] = out
	}
	p.chunks, p.Packs = n.chunks, n.refs
	return nil
}

// renumber collects chunks of two manifests in a new one.
type renumber struct {
	from, moved *packed
	refs        []packRef
	packs       map[string]uint32
	chunks      []chunk
	numbers     map[[2]int32]int32
}

// number returns the new number of a chunk of p.
func (n *renumber) number(p *packed, old int32) int32 {
	key := [2]int32{0, old}
	if p == n.moved {
		key[0] = 1
	}
	if no, ok := n.numbers[key]; ok {
		return no
	}
	c := p.chunks[old]
	ref := p.Packs[c.pack]
	no, ok := n.packs[ref.Name]
	if !ok {
		no = uint32(len(n.refs))
		n.packs[ref.Name] = no
		n.refs = append(n.refs, ref)
	}
	c.pack = no
	n.numbers[key] = int32(len(n.chunks))
	n.chunks = append(n.chunks, c)
	return n.numbers[key]
}
