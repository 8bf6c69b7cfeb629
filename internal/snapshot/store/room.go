package store

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
)

// roomFloor is the room that stays on the disk beside the files of snapshots, for manifests and
// records.
const roomFloor = 4 << 20

// Reserve implements [snapshot.Draft].
func (d *draft) Reserve(size int64) error {
	return classify("begin snapshot", d.id, d.s.claim(string(d.id), size))
}

// claim makes sure that the disk has room for size bytes in the draft directory of this name. A
// write that finds the disk full in the middle would take the last byte from every other sandbox
// first. So claim asks before anything is written. It counts what other drafts have yet to write.
func (s *Store) claim(name string, size int64) error {
	short, err := s.tryClaim(name, size)
	if err != nil || short <= 0 {
		return err
	}
	s.evict(short)
	if short, err = s.tryClaim(name, size); err != nil || short <= 0 {
		return err
	}
	return &carrel.Error{Kind: carrel.Exhausted, Field: "disk",
		Err: fmt.Errorf("the disk has too little room: it takes up to %d MB, and %d MB are missing",
			(size+1<<20-1)>>20, (short+1<<20-1)>>20),
		Hint: "free some disk space under the data directory, kill sandboxes, or delete snapshots"}
}

// tryClaim records the claim if there is room, and else returns how much is missing.
func (s *Store) tryClaim(name string, size int64) (short int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var fs unix.Statfs_t
	if err := unix.Statfs(s.opts.Dir, &fs); err != nil {
		return 0, err
	}
	free := int64(fs.Bavail)*fs.Bsize - roomFloor
	for other, claimed := range s.claims {
		if other != name {
			free -= max(0, claimed-s.written(other))
		}
	}
	if free < size {
		return size - free, nil
	}
	s.claims[name] = size
	return 0, nil
}

// unclaim ends a claim. The caller holds mu.
func (s *Store) unclaim(name string) { delete(s.claims, name) }

// written returns the bytes on the disk of a draft's files.
func (s *Store) written(name string) (sum int64) {
	dir := s.path(dirDrafts, name, filesDir)
	list, err := os.ReadDir(dir)
	if err != nil {
		return 0 // it has just ended
	}
	for _, de := range list {
		var st unix.Stat_t
		if unix.Lstat(filepath.Join(dir, de.Name()), &st) == nil {
			sum += st.Blocks * 512
		}
	}
	return sum
}
