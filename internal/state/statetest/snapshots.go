package statetest

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

// put writes a sandbox's record and snapshots of it, in one change.
func put(t *testing.T, s state.Store, r state.Record, snaps ...state.SnapshotRecord) {
	t.Helper()
	ok(t, s.Apply(t.Context(), state.Change{Put: []state.Record{r}, PutSnapshots: snaps}))
}

func snapshotRoundTrip(t *testing.T, s state.Store) {
	want := SnapshotRecord(Record(now()), now())
	put(t, s, want.Record, want)
	if got := must[state.SnapshotRecord](t)(s.GetSnapshot(t.Context(), want.Snapshot.ID)); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	want.Snapshot.New, want.Snapshot.Names, want.Snapshot.Label = 4096, nil, ""
	put(t, s, want.Record, want)
	if all := must[[]state.SnapshotRecord](t)(s.Snapshots(t.Context())); len(all) != 1 || !reflect.DeepEqual(all[0], want) {
		t.Errorf("after replacing it: %+v\nwant %+v", all, want)
	}
}

func snapshotNotFound(t *testing.T, s state.Store) {
	id := carrel.NewSnapshotID()
	_, err := s.GetSnapshot(t.Context(), id)
	if !errors.Is(err, carrel.NotFound) || !strings.Contains(err.Error(), string(id)) {
		t.Errorf("GetSnapshot: %v, want NotFound naming %s", err, id)
	}
	if all := must[[]state.SnapshotRecord](t)(s.Snapshots(t.Context())); len(all) != 0 {
		t.Errorf("an empty store lists %d snapshots", len(all))
	}
}

func snapshotsOldestFirst(t *testing.T, s state.Store) {
	base, r := now(), Record(now())
	for _, i := range []int{3, 1, 4, 0, 2} {
		put(t, s, r, SnapshotRecord(r, base.Add(time.Duration(i)*time.Nanosecond)))
	}
	all := must[[]state.SnapshotRecord](t)(s.Snapshots(t.Context()))
	if len(all) != 5 {
		t.Fatalf("%d snapshots, want 5", len(all))
	}
	for i, r := range all {
		if want := base.Add(time.Duration(i)); !r.Snapshot.Created.Equal(want) {
			t.Errorf("snapshot %d was created %v, want %v", i, r.Snapshot.Created, want)
		}
	}
}

func snapshotValuesAreCopied(t *testing.T, s state.Store) {
	r := SnapshotRecord(Record(now()), now())
	put(t, s, r.Record, r)
	r.Snapshot.Names[0], r.Record.Env["A"] = "x", "x"
	got := must[state.SnapshotRecord](t)(s.GetSnapshot(t.Context(), r.Snapshot.ID))
	if got.Snapshot.Names[0] == "x" || got.Record.Env["A"] == "x" {
		t.Error("a change of the caller's value reached the store")
	}
}

func changeDoesEverything(t *testing.T, s state.Store) {
	old, gone := Record(now()), Record(now().Add(1))
	oldSnap, goneSnap := SnapshotRecord(old, now()), SnapshotRecord(old, now().Add(1))
	ok(t, s.Apply(t.Context(), state.Change{Put: []state.Record{old, gone}, PutSnapshots: []state.SnapshotRecord{oldSnap, goneSnap}}))

	fresh := Record(now().Add(2))
	freshSnap := SnapshotRecord(fresh, now().Add(2))
	old.User, oldSnap.Snapshot.Label = "changed", "changed"
	ok(t, s.Apply(t.Context(), state.Change{
		Put: []state.Record{old, fresh}, Delete: []carrel.ID{gone.Sandbox.ID},
		PutSnapshots: []state.SnapshotRecord{oldSnap, freshSnap}, DeleteSnapshots: []carrel.SnapshotID{goneSnap.Snapshot.ID},
	}))
	if got, want := must[[]state.Record](t)(s.Sandboxes(t.Context())), []state.Record{old, fresh}; !reflect.DeepEqual(got, want) {
		t.Errorf("records %+v\nwant %+v", got, want)
	}
	if got, want := must[[]state.SnapshotRecord](t)(s.Snapshots(t.Context())), []state.SnapshotRecord{oldSnap, freshSnap}; !reflect.DeepEqual(got, want) {
		t.Errorf("snapshots %+v\nwant %+v", got, want)
	}
}

// changeInOrder makes one change that puts an ID twice, and one that puts and deletes an ID.
func changeInOrder(t *testing.T, s state.Store) {
	twice, both := Record(now()), Record(now())
	second := twice
	second.User = "second"
	snap := SnapshotRecord(twice, now())
	ok(t, s.Apply(t.Context(), state.Change{
		Put: []state.Record{twice, both, second}, Delete: []carrel.ID{both.Sandbox.ID},
		PutSnapshots: []state.SnapshotRecord{snap}, DeleteSnapshots: []carrel.SnapshotID{snap.Snapshot.ID},
	}))
	if got := must[[]state.Record](t)(s.Sandboxes(t.Context())); len(got) != 1 || got[0].User != "second" {
		t.Errorf("records %+v", got)
	}
	if got := must[[]state.SnapshotRecord](t)(s.Snapshots(t.Context())); len(got) != 0 {
		t.Errorf("snapshots %+v", got)
	}
}

// changeUndone makes a change with one impossible write: a number that JSON can't express. None of
// its other writes may be visible.
func changeUndone(t *testing.T, s state.Store) {
	old := Record(now())
	oldSnap := SnapshotRecord(old, now())
	put(t, s, old, oldSnap)
	bad := Record(now())
	bad.Sandbox.Limits.CPUs = math.NaN()
	changed := old
	changed.User = "changed"
	good := state.Change{
		Put: []state.Record{changed, Record(now())}, Delete: []carrel.ID{old.Sandbox.ID},
		PutSnapshots: []state.SnapshotRecord{SnapshotRecord(old, now())}, DeleteSnapshots: []carrel.SnapshotID{oldSnap.Snapshot.ID},
	}
	badPut, badSnapshot := good, good
	badPut.Put = append([]state.Record{changed}, bad)
	badSnapshot.PutSnapshots = append([]state.SnapshotRecord{SnapshotRecord(old, now())}, SnapshotRecord(bad, now()))
	for name, c := range map[string]state.Change{"record": badPut, "snapshot": badSnapshot} {
		if err := s.Apply(t.Context(), c); carrel.KindOf(err) != carrel.Internal {
			t.Errorf("a change with a bad %s: %v, want Internal", name, err)
		}
	}
	if got := must[[]state.Record](t)(s.Sandboxes(t.Context())); !reflect.DeepEqual(got, []state.Record{old}) {
		t.Errorf("records after a change that failed: %+v", got)
	}
	if got := must[[]state.SnapshotRecord](t)(s.Snapshots(t.Context())); !reflect.DeepEqual(got, []state.SnapshotRecord{oldSnap}) {
		t.Errorf("snapshots after a change that failed: %+v", got)
	}
}

func changeOfNothing(t *testing.T, s state.Store) {
	ok(t, s.Apply(t.Context(), state.Change{}))
}

func deletesAreIdempotent(t *testing.T, s state.Store) {
	r := Record(now())
	snap := SnapshotRecord(r, now())
	put(t, s, r, snap)
	for range 2 {
		ok(t, s.Apply(t.Context(), state.Change{Delete: []carrel.ID{r.Sandbox.ID, carrel.NewID()},
			DeleteSnapshots: []carrel.SnapshotID{snap.Snapshot.ID, carrel.NewSnapshotID()}}))
	}
	if _, err := s.GetSnapshot(t.Context(), snap.Snapshot.ID); !errors.Is(err, carrel.NotFound) {
		t.Errorf("a deleted snapshot: %v", err)
	}
	if _, err := s.GetSandbox(t.Context(), r.Sandbox.ID); !errors.Is(err, carrel.NotFound) {
		t.Errorf("a deleted record: %v", err)
	}
}

func snapshotOutlivesRecord(t *testing.T, s state.Store) {
	r := Record(now())
	snap := SnapshotRecord(r, now())
	put(t, s, r, snap)
	ok(t, s.DeleteSandbox(t.Context(), r.Sandbox.ID))
	if got := must[state.SnapshotRecord](t)(s.GetSnapshot(t.Context(), snap.Snapshot.ID)); !reflect.DeepEqual(got, snap) {
		t.Errorf("after its sandbox went: %+v", got)
	}
}

// changesAreSeenWhole pauses and resumes sandboxes from many goroutines. Each step is one change. A
// reader must never find a paused record whose snapshot does not exist.
func changesAreSeenWhole(t *testing.T, s state.Store) {
	const writers, rounds = 8, 15
	var writing, reading sync.WaitGroup
	done := make(chan struct{})
	ids := make([]carrel.ID, writers)
	for i := range writers {
		r := Record(now())
		r.Paused = ""
		ids[i] = r.Sandbox.ID
		ok(t, s.PutSandbox(t.Context(), r))
		writing.Go(func() {
			for range rounds {
				snap := SnapshotRecord(r, now())
				r.Paused = snap.Snapshot.ID
				if err := s.Apply(t.Context(), state.Change{Put: []state.Record{r}, PutSnapshots: []state.SnapshotRecord{snap}}); err != nil {
					t.Error(err)
				}
				r.Paused = ""
				if err := s.Apply(t.Context(), state.Change{Put: []state.Record{r}, DeleteSnapshots: []carrel.SnapshotID{snap.Snapshot.ID}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 2 {
		reading.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				checkPaused(t, s, ids[i%writers])
			}
		})
	}
	writing.Wait()
	close(done)
	reading.Wait()
	if left := must[[]state.SnapshotRecord](t)(s.Snapshots(t.Context())); len(left) != 0 {
		t.Errorf("%d snapshots are left", len(left))
	}
}

// checkPaused fails the test when a record is paused at a missing snapshot, both before and after
// it looked for the snapshot.
func checkPaused(t *testing.T, s state.Store, id carrel.ID) {
	before, err := s.GetSandbox(t.Context(), id)
	if err != nil {
		t.Error(err)
		return
	}
	if before.Paused == "" {
		return
	}
	_, missing := s.GetSnapshot(t.Context(), before.Paused)
	after, err := s.GetSandbox(t.Context(), id)
	if err != nil {
		t.Error(err)
		return
	}
	if missing != nil && after.Paused == before.Paused {
		t.Errorf("%s is paused at %s: %v", id, before.Paused, missing)
	}
}

// tombstonesStay shows that a deleted record leaves a tombstone, that a record put again has none,
// and that old tombstones can be forgotten.
func tombstonesStay(t *testing.T, s state.Store) {
	ctx := t.Context()
	a, b := Record(now()), Record(now())
	sa, sb := SnapshotRecord(a, now()), SnapshotRecord(b, now())
	put(t, s, a, sa)
	put(t, s, b, sb)
	ok(t, s.Apply(ctx, state.Change{Delete: []carrel.ID{a.Sandbox.ID}, DeleteSnapshots: []carrel.SnapshotID{sb.Snapshot.ID}}))
	want := state.Tombstones{Sandboxes: []carrel.ID{a.Sandbox.ID}, Snapshots: []carrel.SnapshotID{sb.Snapshot.ID}}
	if got := must[state.Tombstones](t)(s.Tombstones(ctx)); !reflect.DeepEqual(got, want) {
		t.Errorf("tombstones: %v, want %v", got, want)
	}
	put(t, s, a)
	ok(t, s.DeleteSandbox(ctx, b.Sandbox.ID))
	want.Sandboxes = []carrel.ID{b.Sandbox.ID}
	if got := must[state.Tombstones](t)(s.Tombstones(ctx)); !reflect.DeepEqual(got, want) {
		t.Errorf("tombstones: %v, want %v", got, want)
	}
	unborn := SnapshotRecord(a, now())
	ok(t, s.Apply(ctx, state.Change{Bury: []carrel.SnapshotID{unborn.Snapshot.ID}}))
	if got := must[state.Tombstones](t)(s.Tombstones(ctx)); len(got.Snapshots) != 2 {
		t.Errorf("tombstones: %v, want one of a snapshot without a record, too", got)
	}
	ok(t, s.Apply(ctx, state.Change{PutSnapshots: []state.SnapshotRecord{unborn}}))
	if got := must[state.Tombstones](t)(s.Tombstones(ctx)); len(got.Snapshots) != 1 {
		t.Errorf("tombstones: %v, want none of a snapshot with a record", got)
	}
	ok(t, s.TrimTombstones(ctx, time.Now().Add(time.Minute)))
	if got := must[state.Tombstones](t)(s.Tombstones(ctx)); !reflect.DeepEqual(got, state.Tombstones{}) {
		t.Errorf("tombstones after the trim: %v", got)
	}
}
