package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

// collector is one run of the GC. It holds the background semaphore.
type collector struct {
	s         *Store
	manifests map[carrel.SnapshotID]snapshot.BlobInfo // in the blobs
	uses      map[string]packUse                      // by pack
	users     map[string][]carrel.SnapshotID          // pack → snapshots of this machine
	foreign   map[string]bool                         // packs that other machines' snapshots use
	builds    map[string]bool                         // blobs of builds in use
	images    map[string]snapshot.BlobInfo            // in the blobs, by their names
	bad       error                                   // a manifest can't be read, so it may use any pack
	out       snapshot.Collected
}

// GC implements [snapshot.Store].
func (s *Store) GC(ctx context.Context) (snapshot.Collected, error) {
	began := time.Now()
	out, err := s.gc(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.collections.Took += time.Since(began)
	s.collections.Freed += out.Freed
	if err != nil {
		s.collections.Failed++
	} else {
		s.collections.Done++
	}
	return out, err
}

// Collections are totals of all collections since a store was opened.
type Collections struct {
	Done, Failed int
	Freed        int64 // bytes
	Took         time.Duration
}

// Collections returns what the collections did until now.
func (s *Store) Collections() Collections {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.collections
}

func (s *Store) gc(ctx context.Context) (snapshot.Collected, error) {
	const op = "collect snapshots"
	if err := s.lockBackground(ctx); err != nil {
		return snapshot.Collected{}, classify(op, "", err)
	}
	defer func() { <-s.bg }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	g := &collector{s: s, manifests: map[carrel.SnapshotID]snapshot.BlobInfo{}, uses: map[string]packUse{}, users: map[string][]carrel.SnapshotID{},
		foreign: map[string]bool{}, builds: map[string]bool{}}
	s.mu.Lock()
	unused := s.unused
	s.mu.Unlock()
	err := g.collect(ctx)
	if err == nil {
		s.mu.Lock()
		s.unused -= unused
		s.mu.Unlock()
	}
	s.saveCache()
	return g.out, classify(op, "", err)
}

func (g *collector) collect(ctx context.Context) error {
	if err := step("gc.start"); err != nil {
		return err
	}
	if err := g.sweep(); err != nil {
		return err
	}
	if err := g.s.finishDeletes(ctx); err != nil {
		return err
	}
	if err := g.sweepMarks(ctx); err != nil {
		return err
	}
	if err := g.undoRewrite(ctx); err != nil {
		return err
	}
	if err := g.mark(ctx); err != nil {
		return err
	}
	if err := g.markImages(ctx); err != nil {
		return err
	}
	if g.bad != nil {
		return fmt.Errorf("no pack is removed while a manifest can't be read, since it may use any: %w", g.bad)
	}
	if err := g.removeUnused(ctx); err != nil {
		return err
	}
	if err := g.removeBuilds(ctx); err != nil {
		return err
	}
	if err := g.removeImages(ctx); err != nil {
		return err
	}
	if err := g.rewrite(ctx); err != nil {
		return err
	}
	return step("gc.done")
}

// sweep removes the trash, and drafts that are no longer in use.
func (g *collector) sweep() error {
	s := g.s
	drafts, err := os.ReadDir(s.path(dirDrafts))
	if err != nil {
		return err
	}
	for _, de := range drafts {
		s.mu.Lock()
		held := s.drafts[carrel.SnapshotID(de.Name())]
		s.mu.Unlock()
		if held {
			continue
		}
		if err := os.RemoveAll(s.path(dirDrafts, de.Name())); err != nil {
			return err
		}
		g.out.Drafts++
	}
	trash, err := os.ReadDir(s.path(dirTrash))
	for _, de := range trash {
		err = errors.Join(err, os.RemoveAll(s.path(dirTrash, de.Name())))
	}
	return err
}

// mark finds the content in use.
func (g *collector) mark(ctx context.Context) error {
	if err := g.listManifests(ctx, g.manifests); err != nil {
		return err
	}
	s := g.s
	local := map[carrel.SnapshotID]bool{} // true: packed
	s.mu.Lock()
	for id, e := range s.entries {
		if !e.deleted {
			local[id] = e.packed
		}
	}
	s.mu.Unlock()
	for id, isPacked := range local {
		if !isPacked {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		p, err := s.readPacked(ctx, id)
		if err != nil {
			if !s.known(id) {
				continue // it has been deleted
			}
			if carrel.KindOf(err) != carrel.Invalid && carrel.KindOf(err) != carrel.NotFound {
				return classify("read manifest", id, err)
			}
			g.bad = classify("read manifest", id, err)
			continue
		}
		g.use(p, p.Origin != s.machine)
		if _, there := g.manifests[id]; there && p.Origin != s.machine {
			// Its own machine may have moved its content since then.
			if err := g.markForeign(ctx, id, true); err != nil {
				return err
			}
		}
		for _, ref := range p.Packs {
			g.users[ref.Name] = append(g.users[ref.Name], id)
		}
	}
	for id := range g.manifests {
		isPacked, known := local[id]
		if isPacked {
			continue
		}
		if err := g.markForeign(ctx, id, known); err != nil {
			return err
		}
	}
	return nil
}

// known reports whether this machine has a snapshot with this ID.
func (s *Store) known(id carrel.SnapshotID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[id]
	return e != nil && !e.deleted
}

// markForeign marks the content of a snapshot that is not packed here. Its manifest belongs to
// another machine, or is one of ours that was put just before a crash.
func (g *collector) markForeign(ctx context.Context, id carrel.SnapshotID, known bool) error {
	g.s.mu.Lock()
	gone := g.s.gone[id]
	g.s.mu.Unlock()
	if gone {
		kept, err := g.s.retire(ctx, id)
		if err != nil || !kept {
			return err
		}
		g.s.mu.Lock()
		delete(g.s.gone, id)
		g.s.mu.Unlock()
	}
	p, err := g.s.fetchPacked(ctx, id)
	switch kind := carrel.KindOf(err); {
	case kind == carrel.NotFound: // it has been deleted
		return nil
	case kind == carrel.Invalid:
		g.bad = classify("read manifest", id, err)
		return nil
	case err != nil:
		return classify("read manifest", id, err)
	}
	if p.Origin == g.s.machine && !known && !g.s.known(id) {
		// It was deleted while it was being packed, or this machine has left it to others.
		if kept, err := g.s.retire(ctx, id); err != nil || !kept {
			return err
		}
	}
	g.use(p, true)
	return nil
}

// use marks the chunks of a snapshot. Chunks of a foreign snapshot must stay in their place.
func (g *collector) use(p *packed, foreign bool) {
	if build := p.Manifest.Info.Build; build != "" {
		g.builds[buildBlob(build)] = true
	}
	for _, ref := range p.Packs {
		if foreign {
			g.foreign[ref.Name] = true
		}
		if g.uses[ref.Name] == nil {
			g.uses[ref.Name] = packUse{}
		}
	}
	for _, list := range p.files {
		for _, x := range list {
			if x.chunk >= 0 {
				c := &p.chunks[x.chunk]
				g.uses[p.Packs[c.pack].Name].add(c, x.off, x.off+uint32(x.size))
			}
		}
	}
}

// listManifests lists the manifests in the blobs.
func (g *collector) listManifests(ctx context.Context, into map[carrel.SnapshotID]snapshot.BlobInfo) error {
	prefix := manifestBlob("")
	return g.s.opts.Blobs.List(ctx, prefix, func(b snapshot.BlobInfo) error {
		id, err := carrel.ParseSnapshotID(b.Name[len(prefix):])
		if err == nil {
			into[id] = b
		}
		return nil
	})
}

// removeUnused deletes packs that no snapshot uses.
func (g *collector) removeUnused(ctx context.Context) error {
	s := g.s
	var unused []packRef
	there := map[string]int64{} // sizes
	prefix := packBlob("")
	err := s.opts.Blobs.List(ctx, prefix, func(b snapshot.BlobInfo) error {
		name := b.Name[len(prefix):]
		there[name] = b.Size
		if g.uses[name] != nil || !validPack(name) {
			return nil
		}
		if !s.owns(name) && time.Since(b.Modified) < s.opts.Grace {
			return nil // its manifest may not be written yet
		}
		unused = append(unused, packRef{Name: name, Size: b.Size})
		return nil
	})
	if err != nil {
		return err
	}
	if err := g.forgetMissing(ctx, there); err != nil {
		return err
	}
	return g.deletePacks(ctx, unused)
}

// owns reports whether this store wrote a pack.
func (s *Store) owns(name string) bool { return strings.HasPrefix(name, s.machine+"-") }

// forgetMissing drops packs from the index that are not there, or have another size. Another
// machine's GC may have deleted them. It also removes marks of packs that are in use again, or that
// are ours and gone.
func (g *collector) forgetMissing(ctx context.Context, there map[string]int64) error {
	s := g.s
	bad := map[string]error{}
	for name, size := range s.packs.sizes() {
		switch has, ok := there[name]; {
		case !ok && g.uses[name] == nil:
			if err := s.forgetPack(name); err != nil {
				return err
			}
		case !ok:
			bad[name] = errors.New("it does not exist")
		case has != size:
			bad[name] = fmt.Errorf("it has %d bytes instead of %d", has, size)
		}
	}
	if err := s.distrust(bad); err != nil {
		return err
	}
	dead, err := s.deadPacks(ctx)
	if err != nil {
		return err
	}
	for name := range dead {
		// The mark of another machine's deleted pack stays: that machine's index may still know the
		// pack.
		_, ok := there[name]
		if g.uses[name] != nil || s.owns(name) && !ok {
			if err := s.opts.Blobs.Delete(ctx, deadBlob(name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// deletePacks deletes packs that no manifest used at the last look.
func (g *collector) deletePacks(ctx context.Context, unused []packRef) error {
	s := g.s
	if s.opts.Shared && len(unused) > 0 {
		for _, ref := range unused {
			if err := putBytes(ctx, s.opts.Blobs, deadBlob(ref.Name), []byte(s.machine)); err != nil {
				return err
			}
		}
		if err := step("gc.marked"); err != nil {
			return err
		}
		// Manifests that were put before the marks are seen now. A store that puts one later sees
		// the marks.
		if err := g.markChanged(ctx); err != nil {
			return err
		}
		if g.bad != nil {
			return g.bad
		}
	}
	for _, ref := range unused {
		if err := ctx.Err(); err != nil {
			return err
		}
		if g.uses[ref.Name] != nil {
			if err := s.opts.Blobs.Delete(ctx, deadBlob(ref.Name)); err != nil {
				return err
			}
			continue
		}
		if err := g.deletePack(ctx, ref); err != nil {
			return err
		}
	}
	return nil
}

// deletePack deletes one pack. It first removes the pack from the index, so that no new snapshot
// uses it.
func (g *collector) deletePack(ctx context.Context, ref packRef) error {
	s := g.s
	if err := s.forgetPack(ref.Name); err != nil {
		return err
	}
	if err := step("gc.unindexed"); err != nil {
		return err
	}
	if err := s.opts.Blobs.Delete(ctx, packBlob(ref.Name)); err != nil {
		return err
	}
	g.out.Packs++
	g.out.Freed += ref.Size
	if err := step("gc.deleted"); err != nil {
		return err
	}
	if s.opts.Shared && s.owns(ref.Name) {
		return s.opts.Blobs.Delete(ctx, deadBlob(ref.Name))
	}
	return nil
}

// markChanged marks the content of manifests that were put since the last look.
func (g *collector) markChanged(ctx context.Context) error {
	now := map[carrel.SnapshotID]snapshot.BlobInfo{}
	if err := g.listManifests(ctx, now); err != nil {
		return err
	}
	for id, b := range now {
		if before, ok := g.manifests[id]; ok && before == b {
			continue
		}
		if err := g.markForeign(ctx, id, true); err != nil {
			return err
		}
	}
	return g.markImages(ctx)
}
