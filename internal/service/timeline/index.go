package timeline

import (
	"maps"
	"slices"
	"sync"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

// Index holds all snapshots that this service knows, in memory. It follows the store, so everything
// in it is durable. A record in it is never changed in place.
type Index struct {
	edit sync.Mutex // see LockEdits

	mu    sync.Mutex
	byID  map[carrel.SnapshotID]state.SnapshotRecord
	names map[ownName]carrel.SnapshotID
	of    map[carrel.ID]map[carrel.SnapshotID]struct{}         // by sandbox
	after map[carrel.SnapshotID]map[carrel.SnapshotID]struct{} // by parent, even if the parent is gone
	held  map[carrel.SnapshotID]int                            // in use: must not be deleted
	bytes map[carrel.Holder]int64                              // of the snapshots of a project, and of those that a key's sandboxes left
}

// ownName is a name within its project.
type ownName struct{ project, name string }

// New returns an empty index.
func New() *Index {
	return &Index{byID: map[carrel.SnapshotID]state.SnapshotRecord{}, names: map[ownName]carrel.SnapshotID{},
		of: map[carrel.ID]map[carrel.SnapshotID]struct{}{}, after: map[carrel.SnapshotID]map[carrel.SnapshotID]struct{}{}, held: map[carrel.SnapshotID]int{}, bytes: map[carrel.Holder]int64{}}
}

// LockEdits makes the caller the only one who changes existing records. The caller holds it during
// the store's write.
func (x *Index) LockEdits() (unlock func()) {
	x.edit.Lock()
	return x.edit.Unlock
}

// Put adds or replaces records.
func (x *Index) Put(all ...state.SnapshotRecord) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, sr := range all {
		x.dropLocked(sr.Snapshot.ID)
		x.byID[sr.Snapshot.ID] = sr
		x.weighLocked(sr, 1)
		for _, n := range sr.Snapshot.Names {
			x.names[ownName{sr.Snapshot.Project, n}] = sr.Snapshot.ID
		}
		addTo(x.of, sr.Snapshot.Sandbox, sr.Snapshot.ID)
		if sr.Snapshot.Parent != "" {
			addTo(x.after, sr.Snapshot.Parent, sr.Snapshot.ID)
		}
	}
}

// weighLocked adds the size of a snapshot to its holders' sums, or takes it off.
func (x *Index) weighLocked(sr state.SnapshotRecord, sign int64) {
	size := max(sr.Snapshot.Size, 0) * sign
	if size == 0 || sr.Snapshot.Project == "" || sr.Snapshot.Cause == carrel.CauseBuild {
		return
	}
	of := []carrel.Holder{{Project: sr.Snapshot.Project}}
	if key := sr.Record.KeyID; key != "" {
		of = append(of, carrel.Holder{Project: sr.Snapshot.Project, Key: key})
	}
	for _, h := range of {
		if x.bytes[h] += size; x.bytes[h] == 0 {
			delete(x.bytes, h)
		}
	}
}

// Bytes returns the size of all snapshots of a project, or of those of the sandboxes that a key of it
// made. What builds keep does not count.
func (x *Index) Bytes(of carrel.Holder) int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.bytes[of]
}

// Drop forgets a record.
func (x *Index) Drop(id carrel.SnapshotID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.dropLocked(id)
}

func (x *Index) dropLocked(id carrel.SnapshotID) {
	sr, ok := x.byID[id]
	if !ok {
		return
	}
	delete(x.byID, id)
	x.weighLocked(sr, -1)
	for _, n := range sr.Snapshot.Names {
		if own := (ownName{sr.Snapshot.Project, n}); x.names[own] == id {
			delete(x.names, own)
		}
	}
	dropFrom(x.of, sr.Snapshot.Sandbox, id)
	dropFrom(x.after, sr.Snapshot.Parent, id)
}

// addTo adds to a set of sets.
func addTo[K comparable](sets map[K]map[carrel.SnapshotID]struct{}, k K, id carrel.SnapshotID) {
	if sets[k] == nil {
		sets[k] = map[carrel.SnapshotID]struct{}{}
	}
	sets[k][id] = struct{}{}
}

// dropFrom takes away from one.
func dropFrom[K comparable](sets map[K]map[carrel.SnapshotID]struct{}, k K, id carrel.SnapshotID) {
	delete(sets[k], id)
	if len(sets[k]) == 0 {
		delete(sets, k)
	}
}

// Get finds a record by ID.
func (x *Index) Get(id carrel.SnapshotID) (state.SnapshotRecord, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	sr, ok := x.byID[id]
	return sr, ok
}

// Named finds a record by a name in a project. It tries the exact name first. Then it takes a name
// without a tag, or with the tag default or latest, as the name alone. Last it tries name:default.
func (x *Index) Named(project string, ref carrel.TemplateRef) (state.SnapshotRecord, bool) {
	sr, ok := x.Holder(project, ref.String())
	if !ok && ref.Plain() {
		if sr, ok = x.Holder(project, ref.Name()); !ok {
			sr, ok = x.Holder(project, ref.Name()+DefaultTag)
		}
	}
	return sr, ok
}

// Holder finds the record that has exactly this name in a project.
func (x *Index) Holder(project, name string) (state.SnapshotRecord, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	id, ok := x.names[ownName{project, name}]
	if !ok {
		return state.SnapshotRecord{}, false
	}
	return x.byID[id], true
}

// All lists the records in any order.
func (x *Index) All() []state.SnapshotRecord {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Collect(maps.Values(x.byID))
}

// IsAncestor reports whether old is id or one of its ancestors.
func (x *Index) IsAncestor(old, id carrel.SnapshotID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for range len(x.byID) + 1 { // damaged records may have circles
		if id == old {
			return true
		}
		sr, ok := x.byID[id]
		if !ok {
			return false
		}
		id = sr.Snapshot.Parent
	}
	return false
}

// Hold keeps a snapshot from being deleted until release. ok is false when it is gone.
func (x *Index) Hold(id carrel.SnapshotID) (release func(), ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, ok := x.byID[id]; !ok {
		return nil, false
	}
	return x.holdLocked(id), true
}

// HoldNew is Hold for a snapshot whose record the caller is about to put. So nobody can delete it
// between the two.
func (x *Index) HoldNew(id carrel.SnapshotID) (release func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.holdLocked(id)
}

// holdLocked counts one more user of a snapshot. The caller holds mu.
func (x *Index) holdLocked(id carrel.SnapshotID) (release func()) {
	x.held[id]++
	return sync.OnceFunc(func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.held[id]--; x.held[id] == 0 {
			delete(x.held, id)
		}
	})
}

// IsHeld reports whether somebody holds a snapshot now.
func (x *Index) IsHeld(id carrel.SnapshotID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.held[id] > 0
}

// Hidden reports whether a snapshot is the service's own and is not shown.
func Hidden(sn carrel.Snapshot) bool {
	return sn.Cause == carrel.CauseTemplate || sn.Cause == carrel.CauseBuild
}

// Owners lists the sandboxes that have snapshots.
func (x *Index) Owners() []carrel.ID {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make([]carrel.ID, 0, len(x.of))
	for id := range x.of {
		out = append(out, id)
	}
	return out
}
