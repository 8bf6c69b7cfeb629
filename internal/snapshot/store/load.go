package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
)

// cached is the entry of a snapshot in cache.json. The store uses it only for files that it has
// seen on disk. It never takes from it whether a file exists.
type cached struct {
	Size  int64  `json:"size"`
	Added int64  `json:"added"`
	Used  int64  `json:"used"`
	Made  int64  `json:"made,omitempty"`
	Line  string `json:"line,omitempty"`
}

// cacheFile is the form of cache.json.
type cacheFile struct {
	Snapshots map[carrel.SnapshotID]cached `json:"snapshots"`
	Packs     map[string]int64             `json:"packs"`
}

// readCache reads cache.json. A damaged file counts as an empty one.
func (s *Store) readCache() cacheFile {
	var c cacheFile
	if b, err := os.ReadFile(s.path("cache.json")); err == nil {
		if err := json.Unmarshal(b, &c); err != nil {
			s.log.Warn("snapshot cache", "error", err)
			c = cacheFile{}
		}
	}
	return c
}

// saveCache writes cache.json.
func (s *Store) saveCache() {
	c := cacheFile{Snapshots: map[carrel.SnapshotID]cached{}, Packs: s.packs.sizes()}
	s.mu.Lock()
	for id, e := range s.entries {
		if !e.deleted {
			c.Snapshots[id] = cached{Size: e.size, Added: e.added, Used: e.used, Made: e.made, Line: e.line}
		}
	}
	s.mu.Unlock()
	b, err := json.Marshal(c)
	if err == nil {
		err = atomicfile.Write(s.path("cache.json"), b, 0o600)
	}
	if err != nil {
		s.log.Warn("snapshot cache", "error", err)
	}
}

// sweepLeftovers removes files that belong to no snapshot: drafts, trash, and the hot copies of
// deleted snapshots.
func (s *Store) sweepLeftovers() error {
	deleted, err := os.ReadDir(s.path(dirDeleted))
	if err != nil {
		return err
	}
	for _, de := range deleted {
		if err := os.RemoveAll(s.path(dirHot, de.Name())); err != nil {
			return err
		}
		if err := os.RemoveAll(s.path(dirPacked, de.Name())); err != nil {
			return err
		}
		s.gone[carrel.SnapshotID(de.Name())] = true
	}
	for _, d := range []string{dirDrafts, dirTrash} {
		list, err := os.ReadDir(s.path(d))
		if err != nil {
			return err
		}
		for _, de := range list {
			if err := os.RemoveAll(s.path(d, de.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// loadEntries finds the snapshots on disk.
func (s *Store) loadEntries(ctx context.Context, cache cacheFile) error {
	s.boot = bootID()
	packed, err := os.ReadDir(s.path(dirPacked))
	if err != nil {
		return err
	}
	for _, de := range packed {
		id, err := carrel.ParseSnapshotID(de.Name())
		if err != nil {
			// The temporary file of an interrupted write.
			_ = os.Remove(s.path(dirPacked, de.Name()))
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		c, ok := cache.Snapshots[id]
		if !ok || c.Added < 0 {
			c = s.measurePacked(id)
		}
		s.entries[id] = &entry{size: c.Size, added: c.Added, used: c.Used, made: c.Made, line: c.Line, packed: true}
	}
	hot, err := os.ReadDir(s.path(dirHot))
	if err != nil {
		return err
	}
	for _, de := range hot {
		if err := s.loadHot(de.Name(), cache); err != nil {
			return err
		}
	}
	if err := s.loadAgain(); err != nil {
		return err
	}
	for id, e := range s.entries {
		if e.hot && !e.spare() {
			s.pending = append(s.pending, id)
		}
	}
	slices.SortFunc(s.pending, func(a, b carrel.SnapshotID) int {
		return cmp.Or(cmp.Compare(s.entries[a].used, s.entries[b].used), cmp.Compare(a, b))
	})
	return nil
}

// loadHot loads one directory of hot/.
func (s *Store) loadHot(name string, cache cacheFile) error {
	id, err := carrel.ParseSnapshotID(name)
	if err != nil {
		return nil
	}
	fi, err := os.Stat(s.path(dirHot, name, manifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		// Without a manifest it is no snapshot but an interrupted deletion.
		return os.RemoveAll(s.path(dirHot, name))
	} else if err != nil {
		return err
	}
	e := s.entries[id]
	if e != nil {
		boot, err := os.ReadFile(s.path(dirHot, name, bootFile))
		if err == nil && (len(boot) == 0 || string(boot) != s.boot) {
			// The copy was never synced, and the system has restarted since.
			return os.RemoveAll(s.path(dirHot, name))
		}
	}
	if e == nil {
		e = &entry{added: -1, used: fi.ModTime().UnixNano()}
		s.entries[id] = e
		if c, ok := cache.Snapshots[id]; ok {
			e.size, e.used, e.made, e.line = c.Size, c.Used, c.Made, c.Line
		} else if m, err := readManifest(s.path(dirHot, name, manifestFile), id); err == nil {
			e.size, e.made, e.line = m.Size, m.Created.UnixNano(), m.Line
		} else {
			s.log.Warn("a damaged snapshot", "snapshot", id, "error", err)
		}
	}
	e.hot = true
	s.hot += e.size
	return nil
}

// measurePacked reads the sizes of a packed snapshot. A damaged one counts as empty; its next Open
// reports the damage.
func (s *Store) measurePacked(id carrel.SnapshotID) cached {
	b, err := os.ReadFile(s.path(dirPacked, string(id)))
	if err == nil {
		var h packedHead
		if h, _, err = parseHead(b, id); err == nil {
			return cached{Size: h.Manifest.Size, Added: h.Added, Used: h.Manifest.Created.UnixNano(),
				Made: h.Manifest.Created.UnixNano(), Line: h.Manifest.Line}
		}
	}
	s.log.Warn("a damaged snapshot", "snapshot", id, "error", err)
	return cached{}
}

// loadPackSizes adds up the bytes of this store's packs.
func (s *Store) loadPackSizes(cache cacheFile) error {
	total, err := s.packs.load(cache.Packs)
	s.packed = total
	return err
}
