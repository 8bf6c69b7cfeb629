package store

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/failpoint"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

// files is a hot copy in use.
type files struct {
	s    *Store
	id   carrel.SnapshotID
	e    *entry
	m    snapshot.Manifest
	once sync.Once
}

// Open implements [snapshot.Store].
func (s *Store) Open(ctx context.Context, id carrel.SnapshotID) (snapshot.Files, error) {
	const op = "open snapshot"
	if err := checkID(op, id); err != nil {
		return nil, err
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, classify(op, id, err)
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return nil, errClosed(op)
		}
		e := s.entries[id]
		switch {
		case e == nil || e.deleted:
			s.mu.Unlock()
			if err := s.adopt(ctx, id); err != nil {
				return nil, classify(op, id, err)
			}
		case e.hot && !(e.damaged && e.packed):
			e.holders++
			e.used, e.opened = time.Now().UnixNano(), true
			s.mu.Unlock()
			f, err := s.openHot(id, e)
			if carrel.KindOf(err) == carrel.Invalid && s.replaceable(id, e) {
				continue // its packs have it whole
			}
			return f, err
		default:
			f := s.startFill(id, e)
			s.mu.Unlock()
			select {
			case <-f.done:
			case <-ctx.Done():
			}
			if f.finished() && f.err != nil {
				return nil, classify(op, id, f.err)
			}
		}
	}
}

// openHot opens a hot copy. The caller already holds the entry.
func (s *Store) openHot(id carrel.SnapshotID, e *entry) (snapshot.Files, error) {
	m, err := readManifest(s.path(dirHot, string(id), manifestFile), id)
	if err != nil {
		if s.doubt(e) {
			err = errNotFound("", id)
		}
		s.release(id, e)
		return nil, classify("open snapshot", id, err)
	}
	return &files{s: s, id: id, e: e, m: m}, nil
}

// Dir implements [snapshot.Files].
func (f *files) Dir() string { return f.s.path(dirHot, string(f.id), filesDir) }

// Manifest implements [snapshot.Files].
func (f *files) Manifest() snapshot.Manifest { return f.m }

// Verify implements [snapshot.Files].
func (f *files) Verify(ctx context.Context) error {
	err := verify(ctx, f.Dir(), f.m, f.s.opts.Workers)
	if carrel.KindOf(err) == carrel.Invalid && !f.s.doubt(f.e) {
		err = f.s.replace(ctx, f.id, f.e, err)
	}
	return classify("verify snapshot", f.id, err)
}

// replaceable reports whether the packs hold a snapshot whose hot copy is damaged. If it is being
// packed, replaceable waits: the packer has read and checked the files already, or finds the damage
// itself.
func (s *Store) replaceable(id carrel.SnapshotID, e *entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.packing; p != nil && p.id == id {
		s.mu.Unlock()
		<-p.done
		s.mu.Lock()
	}
	return e.packed && !e.deleted && (e.damaged || !e.hot) && !failpoint.Mutant("heal")
}

// replace puts a good copy from the packs in the place of a damaged one, also while the damaged one
// is in use: its open files stay readable. damage says what is wrong with it. replace returns
// damage if the packs don't have the snapshot, or are damaged, too.
func (s *Store) replace(ctx context.Context, id carrel.SnapshotID, e *entry, damage error) error {
	if !s.replaceable(id, e) {
		return damage
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errClosed("verify snapshot")
	}
	fill := s.startFill(id, e)
	s.mu.Unlock()
	select {
	case <-fill.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	switch {
	case carrel.KindOf(fill.err) == carrel.Invalid:
		return fmt.Errorf("%w; and its packs: %w", damage, fill.err)
	case fill.err != nil:
		return fill.err
	}
	s.log.Warn("a damaged snapshot was replaced by a good copy from its packs", "snapshot", id,
		"damage", damage)
	return &carrel.Error{Kind: carrel.Unavailable,
		Err: fmt.Errorf("%w: %v", snapshot.ErrReplaced, damage), Hint: "try again"}
}

// Close implements [snapshot.Files].
func (f *files) Close() error {
	f.once.Do(func() { f.s.release(f.id, f.e) })
	return nil
}

// doubt records that a hot copy is damaged. If the snapshot is packed, the next Open unpacks it
// again. doubt reports whether the snapshot is being deleted; then nothing is wrong.
func (s *Store) doubt(e *entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.damaged = true
	return e.deleted
}

// release lets go of an entry. The last holder removes files that are no longer wanted.
func (s *Store) release(id carrel.SnapshotID, e *entry) {
	s.mu.Lock()
	e.holders--
	e.used = time.Now().UnixNano()
	var trash string
	if e.holders == 0 && e.hot && (e.marked || e.damaged && e.spare() && !e.deleted) {
		trash = s.dropHot(id, e)
	}
	if e.holders == 0 && e.marked && s.entries[id] == e {
		delete(s.entries, id)
	}
	s.mu.Unlock()
	s.empty(trash)
}

// dropHot moves a hot copy to the trash. The caller holds mu. It returns the path that must be
// removed.
func (s *Store) dropHot(id carrel.SnapshotID, e *entry) string {
	trash, err := os.MkdirTemp(s.path(dirTrash), string(id)+".")
	if err == nil {
		// Not os.Rename, which refuses a directory as its target.
		if err = unix.Rename(s.path(dirHot, string(id)), trash); err != nil {
			_ = os.Remove(trash)
		}
	}
	if err != nil {
		// On a full disk even the rename may fail. Then the copy is removed in place. Its manifest
		// goes first, so that half a copy never counts as a whole one.
		trash = s.path(dirHot, string(id))
		if err := os.Remove(s.path(dirHot, string(id), manifestFile)); err != nil && !os.IsNotExist(err) {
			s.log.Warn("drop a hot snapshot", "snapshot", id, "error", err)
		}
		_ = os.RemoveAll(trash)
	}
	e.hot, e.damaged = false, false
	s.hot -= e.size
	return trash
}

// empty removes the path that dropHot returned. If that fails, a GC or the store's next Open
// removes it.
func (s *Store) empty(trash string) {
	if trash == "" {
		return
	}
	if err := os.RemoveAll(trash); err != nil {
		s.log.Warn("remove a dropped snapshot", "path", trash, "error", err)
	}
}

// Get implements [snapshot.Store].
func (s *Store) Get(ctx context.Context, id carrel.SnapshotID) (snapshot.Manifest, error) {
	const op = "get snapshot"
	if err := checkID(op, id); err != nil {
		return snapshot.Manifest{}, err
	}
	m, err := s.manifest(ctx, id)
	return m, classify(op, id, err)
}

// manifest finds a manifest in the hot copy, in the packed copy or in the blobs.
func (s *Store) manifest(ctx context.Context, id carrel.SnapshotID) (snapshot.Manifest, error) {
	if err := ctx.Err(); err != nil {
		return snapshot.Manifest{}, err
	}
	s.mu.Lock()
	e, closed := s.entries[id], s.closed
	var hot, packed bool
	if e != nil && !e.deleted {
		hot, packed = e.hot, e.packed
	}
	s.mu.Unlock()
	if closed {
		return snapshot.Manifest{}, errClosed("get snapshot")
	}
	if hot {
		m, err := readManifest(s.path(dirHot, string(id), manifestFile), id)
		switch {
		case err == nil:
			return m, nil
		case !packed && !s.known(id):
			return m, errNotFound("", id) // it has been deleted
		case !packed:
			return m, err
		}
		// The copy may just have been evicted, or be damaged. Try the other copy.
	}
	if packed {
		p, err := s.readPacked(ctx, id)
		if err != nil {
			return snapshot.Manifest{}, err
		}
		return p.Manifest, nil
	}
	p, err := s.fetchPacked(ctx, id)
	if err != nil {
		return snapshot.Manifest{}, err
	}
	return p.Manifest, nil
}
