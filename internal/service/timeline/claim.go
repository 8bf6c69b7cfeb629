package timeline

import (
	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

// Claim takes the records of a set that ok agrees to out of the index. It looks at their holders in
// the same step, so nobody can begin to use them any more.
func (x *Index) Claim(set map[carrel.SnapshotID]bool, ok func(sr state.SnapshotRecord, held bool) bool) map[carrel.SnapshotID]state.SnapshotRecord {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := map[carrel.SnapshotID]state.SnapshotRecord{}
	for id := range set {
		if sr, there := x.byID[id]; there && ok(sr, x.held[id] > 0) {
			out[id] = sr
			x.dropLocked(id)
		}
	}
	return out
}

// Orphans returns the records whose parents are removed, with their new parents.
func (x *Index) Orphans(gone map[carrel.SnapshotID]state.SnapshotRecord) []state.SnapshotRecord {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []state.SnapshotRecord
	for parent := range gone {
		for id := range x.after[parent] {
			sr := x.byID[id]
			if sr.Snapshot.Parent = Above(gone, parent); sr.Snapshot.Parent == id {
				sr.Snapshot.Parent = "" // the records were a circle
			}
			out = append(out, sr)
		}
	}
	return out
}

// Above returns the nearest ancestor that stays when the snapshots in gone are removed.
func Above(gone map[carrel.SnapshotID]state.SnapshotRecord, id carrel.SnapshotID) carrel.SnapshotID {
	for range len(gone) + 1 {
		sr, ok := gone[id]
		if !ok {
			return id
		}
		id = sr.Snapshot.Parent
	}
	return "" // a circle
}
