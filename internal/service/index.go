package service

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

// index is all snapshots that this service knows, in memory. What is in it is
// durable: it follows the store. A record in it is never changed in place.
type index struct {
	edit sync.Mutex // orders changes of records that exist: held over the store's write

	mu    sync.Mutex
	byID  map[carrel.SnapshotID]state.SnapshotRecord
	names map[string]carrel.SnapshotID
	of    map[carrel.ID]map[carrel.SnapshotID]struct{} // by sandbox
	held  map[carrel.SnapshotID]int                    // in use by an operation: not to be deleted
}

func (x *index) init() {
	x.byID = map[carrel.SnapshotID]state.SnapshotRecord{}
	x.names = map[string]carrel.SnapshotID{}
	x.of = map[carrel.ID]map[carrel.SnapshotID]struct{}{}
	x.held = map[carrel.SnapshotID]int{}
}

// put adds or replaces records.
func (x *index) put(all ...state.SnapshotRecord) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, sr := range all {
		x.dropLocked(sr.Snapshot.ID)
		x.byID[sr.Snapshot.ID] = sr
		for _, n := range sr.Snapshot.Names {
			x.names[n] = sr.Snapshot.ID
		}
		set := x.of[sr.Snapshot.Sandbox]
		if set == nil {
			set = map[carrel.SnapshotID]struct{}{}
			x.of[sr.Snapshot.Sandbox] = set
		}
		set[sr.Snapshot.ID] = struct{}{}
	}
}

// drop forgets a record.
func (x *index) drop(id carrel.SnapshotID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.dropLocked(id)
}

func (x *index) dropLocked(id carrel.SnapshotID) {
	sr, ok := x.byID[id]
	if !ok {
		return
	}
	delete(x.byID, id)
	for _, n := range sr.Snapshot.Names {
		if x.names[n] == id {
			delete(x.names, n)
		}
	}
	set := x.of[sr.Snapshot.Sandbox]
	delete(set, id)
	if len(set) == 0 {
		delete(x.of, sr.Snapshot.Sandbox)
	}
}

// get finds a record by ID.
func (x *index) get(id carrel.SnapshotID) (state.SnapshotRecord, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	sr, ok := x.byID[id]
	return sr, ok
}

// named finds a record by ID or name; a name without a tag also finds name:default.
func (x *index) named(idOrName string) (state.SnapshotRecord, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if sr, ok := x.byID[carrel.SnapshotID(idOrName)]; ok {
		if hidden(sr.Snapshot) {
			return state.SnapshotRecord{}, false // a record shares its slices, which a caller without it may write into
		}
		return sr, true
	}
	id, ok := x.names[idOrName]
	if !ok {
		id, ok = x.names[idOrName+":default"]
	}
	if !ok {
		return state.SnapshotRecord{}, false
	}
	return x.byID[id], true
}

// all lists the records in no order.
func (x *index) all() []state.SnapshotRecord {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Collect(maps.Values(x.byID))
}

// ancestor reports whether old is id or one of the moments it came after.
func (x *index) ancestor(old, id carrel.SnapshotID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for range len(x.byID) + 1 { // records are not trusted to be free of circles
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

// hold keeps a snapshot from being deleted until release. ok is false when it is gone.
func (x *index) hold(id carrel.SnapshotID) (release func(), ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, ok := x.byID[id]; !ok {
		return nil, false
	}
	x.held[id]++
	return sync.OnceFunc(func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.held[id]--; x.held[id] == 0 {
			delete(x.held, id)
		}
	}), true
}

// loadIndex reads the records, and removes contents without a record: a service
// died between the two, and nobody was told of them.
func (s *Service) loadIndex(ctx context.Context) error {
	s.snaps.init()
	if s.opts.Snapshots == nil {
		return nil
	}
	all, err := s.opts.Store.Snapshots(ctx)
	if err != nil {
		return &carrel.Error{Op: opRecover, Kind: carrel.KindOf(err), Err: err}
	}
	s.snaps.put(all...)
	ids, err := s.opts.Snapshots.List(ctx)
	if err != nil {
		return &carrel.Error{Op: opRecover, Kind: carrel.KindOf(err), Err: err}
	}
	there := make(map[carrel.SnapshotID]bool, len(ids))
	for _, id := range ids {
		there[id] = true
		if _, ok := s.snaps.get(id); !ok {
			if err := s.opts.Snapshots.Delete(ctx, id); err != nil {
				s.log.Error("remove a snapshot that was never announced", "snapshot", id, "err", err)
			}
		}
	}
	for _, sr := range all {
		if !there[sr.Snapshot.ID] {
			s.log.Error("the content of a snapshot is not where it was", "snapshot", sr.Snapshot.ID, "sandbox", sr.Snapshot.Sandbox)
		}
	}
	return nil
}

// findSnapshot finds a snapshot by ID or name.
func (s *Service) findSnapshot(op, idOrName string) (state.SnapshotRecord, error) {
	sr, ok := s.snaps.named(idOrName)
	if !ok {
		return state.SnapshotRecord{}, &carrel.Error{Op: op, Kind: carrel.NotFound, Field: "snapshotID",
			Err: fmt.Errorf("no snapshot %s", clip(idOrName)), Hint: "see carrel snapshot ls"}
	}
	return sr, nil
}

// apply makes a change durable and then known.
func (s *Service) apply(ctx context.Context, c state.Change) error {
	if err := s.opts.Store.Apply(ctx, c); err != nil {
		return err
	}
	for _, id := range c.DeleteSnapshots {
		s.snaps.drop(id)
	}
	s.snaps.put(c.PutSnapshots...)
	return nil
}

// errNoSnapshots is the answer where snapshots can't be kept.
var errNoSnapshots = errors.New("this service keeps no snapshots")
