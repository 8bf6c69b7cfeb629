package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

var _ snapshot.BuildStore = (*Store)(nil)

// buildBlob is the name of a build's blob. Names of builds have characters that names of blobs may
// not have.
func buildBlob(name string) string {
	if name == "" {
		return "builds/"
	}
	sum := sha256.Sum256([]byte(name))
	return "builds/" + hex.EncodeToString(sum[:16])
}

// PutBuild implements [snapshot.BuildStore].
func (s *Store) PutBuild(ctx context.Context, name string,
	open func() (io.ReadCloser, int64, error)) error {
	const op = "store build"
	if !s.opts.Shared {
		return nil
	}
	there := false
	err := s.opts.Blobs.List(ctx, buildBlob(name),
		func(snapshot.BlobInfo) error { there = true; return nil })
	if err != nil || there {
		return classify(op, "", err)
	}
	r, size, err := open()
	if err != nil {
		return err
	}
	defer r.Close()
	return classify(op, "", s.opts.Blobs.Put(ctx, buildBlob(name), r, size))
}

// GetBuild implements [snapshot.BuildStore].
func (s *Store) GetBuild(ctx context.Context, name string) (io.ReadCloser, error) {
	const op = "fetch build"
	if !s.opts.Shared {
		return nil, &carrel.Error{Op: op, Kind: carrel.NotFound}
	}
	r, err := s.opts.Blobs.Get(ctx, buildBlob(name), 0, -1)
	return r, classify(op, "", err)
}

// removeBuilds deletes the builds that no snapshot of any machine uses. A build may come before the
// first manifest that names it, so young ones stay.
func (g *collector) removeBuilds(ctx context.Context) error {
	s := g.s
	if !s.opts.Shared {
		return nil
	}
	if err := g.markUnpacked(ctx); err != nil {
		return err
	}
	var unused []snapshot.BlobInfo
	err := s.opts.Blobs.List(ctx, buildBlob(""), func(b snapshot.BlobInfo) error {
		if !g.builds[b.Name] && time.Since(b.Modified) >= s.opts.Grace {
			unused = append(unused, b)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, b := range unused {
		if err := s.opts.Blobs.Delete(ctx, b.Name); err != nil {
			return err
		}
		g.out.Freed += b.Size
	}
	return nil
}

// markUnpacked marks the builds of this machine's snapshots that have no packed manifest yet.
func (g *collector) markUnpacked(ctx context.Context) error {
	var ids []carrel.SnapshotID
	g.s.mu.Lock()
	for id, e := range g.s.entries {
		if !e.packed && !e.deleted {
			ids = append(ids, id)
		}
	}
	g.s.mu.Unlock()
	for _, id := range ids {
		m, err := g.s.Get(ctx, id)
		switch {
		case carrel.KindOf(err) == carrel.NotFound: // deleted meanwhile
		case err != nil:
			return err
		case m.Info.Build != "":
			g.builds[buildBlob(m.Info.Build)] = true
		}
	}
	return nil
}
