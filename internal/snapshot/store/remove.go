package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
)

// Delete implements [snapshot.Store].
func (s *Store) Delete(ctx context.Context, id carrel.SnapshotID) error {
	const op = "delete snapshot"
	if err := checkID(op, id); err != nil {
		return err
	}
	return classify(op, id, s.remove(ctx, id))
}

func (s *Store) remove(ctx context.Context, id carrel.SnapshotID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	// First stop the packer's work on this snapshot. Otherwise the packer would publish it again.
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errClosed("delete snapshot")
	}
	e := s.entries[id]
	if e == nil {
		shared, gone := s.opts.Shared, s.gone[id]
		s.mu.Unlock()
		if !shared || gone {
			return nil
		}
		return s.removeForeign(ctx, id)
	}
	if e.deleted {
		s.mu.Unlock()
		return nil
	}
	e.deleted = true
	packing := s.packing
	s.mu.Unlock()
	if packing != nil && packing.id == id {
		packing.cancel()
		<-packing.done
	}
	s.mu.Lock()
	hot, packed := e.hot, e.packed // packed no longer changes, because the snapshot is being deleted
	s.mu.Unlock()
	if err := s.markDeleted(id, hot, packed); err != nil {
		s.mu.Lock()
		e.deleted = false
		s.mu.Unlock()
		return err
	}
	s.mu.Lock()
	s.gone[id] = true
	e.marked = true
	if packed {
		s.unused += max(e.added, 0)
		select {
		case s.junk <- struct{}{}:
		default:
		}
	}
	var trash string
	if e.holders == 0 {
		if e.hot {
			trash = s.dropHot(id, e)
		}
		delete(s.entries, id)
	}
	s.mu.Unlock()
	s.empty(trash)
	if err := step("delete.removed"); err != nil {
		return err
	}
	if packed {
		// The deletion is durable. If the object store does not answer, it is repeated there later.
		if err := s.finishDelete(ctx, id); err != nil {
			s.log.Warn("delete a snapshot's manifest; GC tries again", "snapshot", id, "error", err)
		}
	}
	return nil
}

// Unused returns a channel that gets a value after deletions that left content for GC. bytes
// estimates how much that is.
func (s *Store) Unused() (left <-chan struct{}, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.junk, s.unused
}

// markDeleted makes the deletion durable. It works without free room on the disk.
func (s *Store) markDeleted(id carrel.SnapshotID, hot, packed bool) error {
	if err := step("delete.start"); err != nil {
		return err
	}
	if packed {
		if err := os.Rename(s.path(dirPacked, string(id)), s.path(dirDeleted, string(id))); err != nil {
			return err
		}
		if err := errors.Join(atomicfile.SyncDir(s.path(dirDeleted)), atomicfile.SyncDir(s.path(dirPacked))); err != nil {
			return err
		}
	}
	if hot && !packed {
		if err := os.Remove(s.path(dirHot, string(id), manifestFile)); err != nil && !os.IsNotExist(err) {
			return err
		}
		if err := atomicfile.SyncDir(s.path(dirHot, string(id))); err != nil {
			return err
		}
	}
	// From here on the snapshot is gone, even if a later step fails.
	if err := step("delete.marked"); err != nil {
		s.log.Warn("delete a snapshot", "snapshot", id, "error", err)
	}
	return nil
}

// finishDelete removes the blob of a deleted snapshot, and then the mark.
func (s *Store) finishDelete(ctx context.Context, id carrel.SnapshotID) error {
	kept, err := s.retire(ctx, id)
	if err != nil {
		return err
	}
	if err := step("delete.blob"); err != nil {
		return err
	}
	if err := os.Remove(s.path(dirDeleted, string(id))); err != nil && !os.IsNotExist(err) {
		return err
	}
	if kept { // from now on it is another machine's, like any other
		s.mu.Lock()
		delete(s.gone, id)
		s.mu.Unlock()
	}
	return nil
}

// finishDeletes continues deletions that did not reach the object store.
func (s *Store) finishDeletes(ctx context.Context) error {
	list, err := os.ReadDir(s.path(dirDeleted))
	for _, de := range list {
		id, perr := carrel.ParseSnapshotID(de.Name())
		if perr != nil {
			continue
		}
		err = errors.Join(err, s.finishDelete(ctx, id))
	}
	return err
}

// makeRoom drops hot copies of packed snapshots, so that need more bytes fit the quota and the disk
// keeps its reserve. Error: Exhausted, for the quota only.
func (s *Store) makeRoom(op string, need int64) error {
	s.mu.Lock()
	over := s.hot + s.packed + need - s.opts.Quota
	quota := s.opts.Quota
	s.mu.Unlock()
	if quota > 0 && over > 0 {
		s.evict(over)
	}
	if s.opts.Reserve > 0 {
		var fs unix.Statfs_t
		if err := unix.Statfs(s.opts.Dir, &fs); err == nil {
			if short := s.opts.Reserve + need - int64(fs.Bavail)*fs.Bsize; short > 0 {
				s.evict(short)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if used := s.hot + s.packed; quota > 0 && used+need > quota {
		return &carrel.Error{Op: op, Kind: carrel.Exhausted, Field: "quota",
			Err:  fmt.Errorf("snapshots use %d MB of their quota of %d MB, and %d MB more are needed", used>>20, quota>>20, (need+1<<20-1)>>20),
			Hint: "delete snapshots, shorten their retention, or raise the snapshot quota"}
	}
	return nil
}

// evict drops hot copies of packed snapshots, least recently used first, until want bytes are free.
func (s *Store) evict(want int64) {
	type candidate struct {
		id   carrel.SnapshotID
		e    *entry
		used int64
	}
	s.mu.Lock()
	var list []candidate
	for id, e := range s.entries {
		if e.hot && e.spare() && e.holders == 0 && e.fill == nil && e.size > 0 {
			list = append(list, candidate{id, e, e.used})
		}
	}
	s.mu.Unlock()
	slices.SortFunc(list, func(a, b candidate) int { return cmp.Compare(a.used, b.used) })
	for _, c := range list {
		if want <= 0 {
			return
		}
		s.mu.Lock()
		var trash string
		if c.e.hot && c.e.spare() && c.e.holders == 0 && s.entries[c.id] == c.e {
			trash = s.dropHot(c.id, c.e)
			want -= c.e.size
		}
		s.mu.Unlock()
		if err := step("evict.renamed"); err != nil {
			s.log.Warn("drop a hot snapshot", "snapshot", c.id, "error", err)
		}
		s.empty(trash)
	}
}

// recently is the time for which a hot copy stays after its last use although its timeline has a
// newer one. It must have been opened.
const recently = 10 * time.Minute

// trim drops hot copies of packed snapshots. First it drops copies whose timeline has a newer one,
// except those that were opened lately. Then it drops copies until the rest fits the budget.
func (s *Store) trim() {
	s.dropReplaced(time.Now())
	s.mu.Lock()
	over := s.hot - max(s.opts.HotBytes, 0)
	s.mu.Unlock()
	if over > 0 {
		s.evict(over)
	}
}

// dropReplaced drops hot copies whose timeline has a newer snapshot.
func (s *Store) dropReplaced(now time.Time) {
	var trash []string
	s.mu.Lock()
	newest := map[string]int64{}
	for _, e := range s.entries {
		if e.line != "" && !e.deleted {
			newest[e.line] = max(newest[e.line], e.made)
		}
	}
	for id, e := range s.entries {
		replaced := e.line != "" && e.made < newest[e.line]
		wanted := e.opened && now.Sub(time.Unix(0, e.used)) < recently
		if replaced && !wanted && e.hot && e.spare() && e.holders == 0 && e.fill == nil {
			trash = append(trash, s.dropHot(id, e))
		}
	}
	s.mu.Unlock()
	for _, dir := range trash {
		s.empty(dir)
	}
}
