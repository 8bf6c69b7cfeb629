package archive

import (
	"cmp"
	"context"
	"os"
	"slices"

	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/erofs"
	"github.com/carrel-dev/carrel/internal/image/stargz"
)

// Late says what an image still lacks. With all of it, the image is the one that [Importer.Image]
// makes of the same layers, byte for byte.
type Late struct {
	Size   int64       // of the image
	First  []byte      // its first block, which the file gets last
	Pieces []LatePiece // by layer, and by their place in it
}

// LatePiece is a part of the image that is a hole: the content of a chunk belongs there.
type LatePiece struct {
	Layer int   // index in Source.Layers
	Place int64 // in the image
	Chunk stargz.Chunk
}

// lateFile is a file whose content comes later.
type lateFile struct {
	layer   int
	fetch   func(stargz.Chunk) ([]byte, error)
	chunks  []stargz.Chunk
	fetched bool
}

// Late makes an image whose metadata is whole. Of the layers that have a TOC, it leaves out the
// contents of files. It fetches only those that it needs itself.
func (i Importer) Late(ctx context.Context, src *Source, format string) (*os.File, *Result, *Late,
	error) {
	i.Meter.Stage(image.StageUnpack, 0)
	late := &Late{}
	f, res, err := i.makeWith(ctx, func(t *Tree) (*Result, error) {
		t.late = map[int64]*lateFile{}
		return t.Image(ctx, src, format)
	}, func(t *Tree) (size int64, err error) {
		late.Size, late.First, err = t.w.FinishMetadata(t.Root, t.Root.Newest())
		late.Pieces = t.latePieces()
		return late.Size, err
	})
	if err != nil {
		return nil, nil, nil, err
	}
	return f, res, late, nil
}

// addLater adds a layer by its TOC.
func (t *Tree) addLater(ctx context.Context, layer int, l Layer) error {
	t.touched = map[place]struct{}{}
	fetch := func(c stargz.Chunk) ([]byte, error) { return l.Chunk(ctx, c) }
	for k := range l.TOC.Entries {
		e := &l.TOC.Entries[k]
		if err := ctx.Err(); err != nil {
			return sourceError{err}
		}
		err := t.entry(&e.Header, true, func(at erofs.Extent) error {
			if at.Size > 0 {
				t.late[at.Offset()] = &lateFile{layer: layer, fetch: fetch, chunks: e.Chunks}
			}
			return nil
		})
		if err != nil {
			return entryError(e.Header.Name, err)
		}
	}
	return nil
}

// fetchLate fetches the contents at a place, if they are still missing.
func (t *Tree) fetchLate(at erofs.Extent) error {
	f := t.late[at.Offset()]
	if f == nil || at.Size == 0 || f.fetched {
		return nil
	}
	for _, c := range f.chunks {
		content, err := f.fetch(c)
		if err != nil {
			return sourceError{err}
		}
		if err := t.w.FillAt(at, c.At, content); err != nil {
			return err
		}
	}
	f.fetched = true
	return nil
}

// latePieces lists the missing contents of the files that are in the finished tree.
func (t *Tree) latePieces() []LatePiece {
	var out []LatePiece
	seen := map[int64]bool{}
	var walk func(n *erofs.Node)
	walk = func(n *erofs.Node) {
		for _, name := range n.Names() {
			c := n.Child(name)
			if c.IsDir() {
				walk(c)
				continue
			}
			at := c.Data.Offset()
			f := t.late[at]
			if !c.Mode.IsRegular() || c.Data.Size == 0 || f == nil || seen[at] {
				continue
			}
			seen[at] = true
			for _, chunk := range f.chunks {
				out = append(out, LatePiece{Layer: f.layer, Place: at + chunk.At, Chunk: chunk})
			}
		}
	}
	walk(t.Root)
	slices.SortFunc(out, func(a, b LatePiece) int {
		return cmp.Or(cmp.Compare(a.Layer, b.Layer), cmp.Compare(a.Chunk.Offset, b.Chunk.Offset),
			cmp.Compare(a.Place, b.Place))
	})
	return out
}
