package store

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

// ListRemote returns the IDs of all snapshots in the blobs, also those of other machines. Errors:
// Unavailable.
func (s *Store) ListRemote(ctx context.Context) ([]carrel.SnapshotID, error) {
	var ids []carrel.SnapshotID
	prefix := manifestBlob("")
	err := s.opts.Blobs.List(ctx, prefix, func(b snapshot.BlobInfo) error {
		if id, err := carrel.ParseSnapshotID(b.Name[len(prefix):]); err == nil {
			ids = append(ids, id)
		}
		return nil
	})
	slices.Sort(ids)
	return ids, classify("list snapshots", "", err)
}

// rewriteManifest makes a snapshot of this machine use chunks in their new places. A Delete of the
// snapshot waits until it is done.
func (g *collector) rewriteManifest(ctx context.Context, id carrel.SnapshotID, r *rewriter) error {
	s := g.s
	ctx, done, ok := s.holdManifest(ctx, id)
	if !ok {
		return nil
	}
	defer done()
	p, err := s.readPacked(ctx, id)
	if err != nil {
		return err
	}
	if err := r.move(p); err != nil {
		return err
	}
	b, err := p.encode()
	if err != nil {
		return err
	}
	if err := step("gc.manifest"); err != nil {
		return err
	}
	if err := putBytes(ctx, s.opts.Blobs, manifestBlob(id), b); err != nil {
		return err
	}
	if err := step("gc.moved"); err != nil {
		return err
	}
	return atomicfile.Write(s.path(dirPacked, string(id)), b, 0o600)
}

// holdManifest makes a Delete of a packed snapshot wait until the caller calls done. It returns
// false when there is nothing to hold.
func (s *Store) holdManifest(ctx context.Context, id carrel.SnapshotID) (_ context.Context, done func(), ok bool) {
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[id]
	if e == nil || e.deleted || !e.packed {
		cancel()
		return ctx, nil, false
	}
	work := &packing{id: id, cancel: func() {}, done: make(chan struct{})}
	s.packing = work
	return ctx, func() {
		cancel()
		s.mu.Lock()
		s.packing = nil
		s.mu.Unlock()
		close(work.done)
	}, true
}

// rewritingFile lists the snapshots whose manifests a GC is about to rewrite. While it exists, the
// manifests in the blobs may name other packs than the manifests kept here. All packs that either
// of them names exist.
const rewritingFile = "rewriting"

// undoRewrite goes back to the manifests kept here, after an interrupted rewrite.
func (g *collector) undoRewrite(ctx context.Context) error {
	s := g.s
	b, err := os.ReadFile(s.path(rewritingFile))
	if os.IsNotExist(err) {
		return nil
	} else if err != nil {
		return err
	}
	for text := range strings.FieldsSeq(string(b)) {
		id, err := carrel.ParseSnapshotID(text)
		if err != nil {
			continue
		}
		if err := g.putAgain(ctx, id); err != nil {
			return classify("put manifest", id, err)
		}
	}
	return g.endRewrite()
}

// putAgain puts the manifest that is kept here into the blobs.
func (g *collector) putAgain(ctx context.Context, id carrel.SnapshotID) error {
	ctx, done, ok := g.s.holdManifest(ctx, id)
	if !ok {
		return nil
	}
	defer done()
	b, err := os.ReadFile(g.s.path(dirPacked, string(id)))
	if err != nil {
		return err
	}
	return putBytes(ctx, g.s.opts.Blobs, manifestBlob(id), b)
}

// beginRewrite records the snapshots whose manifests are about to change.
func (g *collector) beginRewrite(users map[carrel.SnapshotID]bool) error {
	var b []byte
	for id := range users {
		b = append(append(b, id...), '\n')
	}
	return atomicfile.Write(g.s.path(rewritingFile), b, 0o600)
}

// endRewrite records that the manifests here and in the blobs are the same again.
func (g *collector) endRewrite() error {
	if err := os.Remove(g.s.path(rewritingFile)); err != nil {
		return err
	}
	return atomicfile.SyncDir(g.s.opts.Dir)
}
