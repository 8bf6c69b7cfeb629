package service_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/service"
	"github.com/carrel-dev/carrel/internal/state"
)

func TestListSnapshots(t *testing.T) {
	d := newDen(t, nil)
	a, b := d.create(t, carrel.CreateOptions{}), d.create(t, carrel.CreateOptions{})
	var all []carrel.SnapshotID // newest first
	for i := range 7 {
		sn, err := d.Snapshot(t.Context(), a.ID, carrel.SnapshotOptions{Name: fmt.Sprintf("work:v%d", i)})
		if err != nil {
			t.Fatal(err)
		}
		if sn.New != 10 || sn.Size != 1000 || !sn.Kept {
			t.Errorf("a snapshot without its cost: %+v", sn)
		}
		all = slices.Insert(all, 0, sn.ID)
	}
	auto := d.snap(t, b.ID, carrel.CauseInterval)
	var got []carrel.SnapshotID
	for cursor := ""; ; {
		page, err := d.ListSnapshots(t.Context(), carrel.SnapshotListOptions{Limit: 3, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, sn := range page.Snapshots {
			got = append(got, sn.ID)
		}
		if len(got) == 3 { // snapshots that come and go between pages shift nothing
			d.snap(t, b.ID, carrel.CauseGuest)
			if err := d.DeleteSnapshot(t.Context(), string(got[2])); err != nil {
				t.Fatal(err)
			}
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if !slices.Equal(got, all) {
		t.Errorf("listed %v, want %v", got, all)
	}
	for name, want := range map[string]int{"": 7, "work": 6, "work:v0": 1, "work:v4": 0, "wor": 0} {
		page, err := d.ListSnapshots(t.Context(), carrel.SnapshotListOptions{Name: name})
		if err != nil || len(page.Snapshots) != want {
			t.Errorf("name %q: %d snapshots, %v, want %d", name, len(page.Snapshots), err, want)
		}
	}
	page, err := d.ListSnapshots(t.Context(), carrel.SnapshotListOptions{Sandbox: b.ID, Auto: true})
	if err != nil || len(page.Snapshots) != 2 || page.Snapshots[1].ID != auto {
		t.Errorf("with those taken by themselves: %+v, %v", page, err)
	}
	for field, o := range map[string]carrel.SnapshotListOptions{"limit": {Limit: 101}, "nextToken": {Cursor: "x!"}, "sandboxID": {Sandbox: "../x"}} {
		var ce *carrel.Error
		if _, err := d.ListSnapshots(t.Context(), o); !errors.As(err, &ce) || ce.Kind != carrel.Invalid || ce.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestUpdateSnapshot(t *testing.T) {
	d := newDen(t, nil)
	sb := d.create(t, carrel.CreateOptions{})
	a, b := d.snap(t, sb.ID, carrel.CauseRequest), d.snap(t, sb.ID, carrel.CauseInterval)
	names, label, kept := []string{"good", "team/x:v1"}, "before the rain", true
	sn, err := d.UpdateSnapshot(t.Context(), a, carrel.SnapshotUpdate{Names: &names, Label: &label, Kept: &kept})
	if err != nil || !slices.Equal(sn.Names, names) || sn.Label != label || !sn.Kept {
		t.Fatalf("updated %+v, %v", sn, err)
	}
	sn.Names[0], names[1] = "changed", "changed"
	for _, name := range []string{"good", "team/x:v1"} {
		if got, err := d.GetSnapshot(t.Context(), name); err != nil || got.ID != a {
			t.Errorf("by the name %s: %+v, %v", name, got, err)
		}
	}
	rec, err := d.store.GetSnapshot(t.Context(), a)
	if err != nil || rec.Snapshot.Label != label {
		t.Errorf("recorded %+v, %v", rec, err)
	}
	for _, taken := range []string{"good", "good:default"} {
		_, err = d.UpdateSnapshot(t.Context(), b, carrel.SnapshotUpdate{Names: &[]string{taken}})
		if !errors.Is(err, carrel.AlreadyExists) || !strings.Contains(err.Error(), string(a)) {
			t.Errorf("a name that is taken: %v", err)
		}
	}
	none := []string{}
	if _, err := d.UpdateSnapshot(t.Context(), a, carrel.SnapshotUpdate{Names: &none}); err != nil {
		t.Error(err)
	}
	if _, err := d.GetSnapshot(t.Context(), "good"); !errors.Is(err, carrel.NotFound) {
		t.Errorf("a name that was taken away: %v", err)
	}
	if _, err := d.UpdateSnapshot(t.Context(), b, carrel.SnapshotUpdate{Names: &[]string{"good"}}); err != nil {
		t.Error(err)
	}
	if _, err := d.UpdateSnapshot(t.Context(), "good", carrel.SnapshotUpdate{}); !errors.Is(err, carrel.NotFound) {
		t.Errorf("by name: %v", err)
	}
	for _, bad := range []carrel.SnapshotUpdate{
		{Names: &[]string{""}}, {Names: &[]string{"a", "a:default"}}, {Names: &[]string{"a b"}}, {Names: &[]string{"a:b:c"}}, {Names: &[]string{"-a"}},
		{Names: &[]string{strings.Repeat("a", 129)}}, {Names: &[]string{string(carrel.NewSnapshotID())}}, {Names: &[]string{string(carrel.NewID()) + ":v1"}},
		{Names: &[]string{"ä"}}, {Names: &[]string{"a\n"}}, {Names: ptr(make([]string, 17))}, {Label: ptr(strings.Repeat("x", 257))},
		{Label: ptr("a\x1b[31m")}, {Label: ptr("\xff")}, {Label: ptr("a\u2028b")}, {Label: ptr("\u009b31m")},
	} {
		if _, err := d.UpdateSnapshot(t.Context(), b, bad); !errors.Is(err, carrel.Invalid) {
			t.Errorf("%+v: %v, want Invalid", bad, err)
		}
	}
	d.consistent(t)
}

func ptr[T any](v T) *T { return &v }

// TestNamesRace gives one name to many snapshots at once.
func TestNamesRace(t *testing.T) {
	d := newDen(t, nil)
	sb := d.create(t, carrel.CreateOptions{})
	var ids []carrel.SnapshotID
	for range 8 {
		ids = append(ids, d.snap(t, sb.ID, carrel.CauseRequest))
	}
	var wg sync.WaitGroup
	for _, id := range ids {
		wg.Go(func() {
			_, err := d.UpdateSnapshot(t.Context(), id, carrel.SnapshotUpdate{Names: &[]string{"one"}})
			if err != nil && !errors.Is(err, carrel.AlreadyExists) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	recs, _ := d.store.Snapshots(t.Context())
	n := 0
	for _, r := range recs {
		n += len(r.Snapshot.Names)
	}
	if n != 1 {
		t.Errorf("%d snapshots have the name", n)
	}
}

func TestDeleteSnapshot(t *testing.T) {
	d := newDen(t, nil)
	sb := d.create(t, carrel.CreateOptions{})
	a, b, c := d.snap(t, sb.ID, carrel.CauseRequest), d.snap(t, sb.ID, carrel.CauseRequest), d.snap(t, sb.ID, carrel.CauseRequest)
	forks, err := d.Fork(t.Context(), sb.ID, carrel.ForkOptions{})
	if err != nil || forks[0].Err != nil {
		t.Fatal(err, forks)
	}
	f := d.timeline(t, sb.ID)[3]
	if err := d.DeleteSnapshot(t.Context(), string(b)); err != nil {
		t.Fatal(err)
	}
	if sn, err := d.GetSnapshot(t.Context(), string(c)); err != nil || sn.Parent != a {
		t.Errorf("the child of a deleted parent: %+v, %v", sn, err)
	}
	// This is the newest snapshot of both sandboxes.
	if err := d.DeleteSnapshot(t.Context(), string(f)); err != nil {
		t.Fatal(err)
	}
	for _, id := range []carrel.ID{sb.ID, forks[0].Sandbox.ID} {
		if got, err := d.Get(t.Context(), id); err != nil || got.Snapshot != c {
			t.Errorf("a sandbox at a deleted moment is at %q, %v, want %q", got.Snapshot, err, c)
		}
	}
	for _, name := range []string{string(b), "nope", "", strings.Repeat("x", 1000), "../../etc"} {
		if err := d.DeleteSnapshot(t.Context(), name); !errors.Is(err, carrel.NotFound) || len(err.Error()) > 300 {
			t.Errorf("delete %.20q: %v", name, err)
		}
	}
	if _, err := d.Pause(t.Context(), sb.ID, carrel.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	p, _ := d.Get(t.Context(), sb.ID)
	err = d.DeleteSnapshot(t.Context(), string(p.Snapshot))
	var ce *carrel.Error
	if !errors.As(err, &ce) || ce.Kind != carrel.Conflict || ce.ID != sb.ID || ce.Hint == "" {
		t.Errorf("what a paused sandbox needs: %v", err)
	}
	d.consistent(t)
	if _, _, err := d.Resume(t.Context(), sb.ID, carrel.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := d.DeleteSnapshot(t.Context(), string(p.Snapshot)); err != nil {
		t.Errorf("once it was resumed: %v", err)
	}
	d.consistent(t)
	// The next snapshot's parent is one that still exists.
	if sn, err := d.GetSnapshot(t.Context(), string(d.snap(t, sb.ID, carrel.CauseRequest))); err != nil || sn.Parent != c {
		t.Errorf("%+v, %v", sn, err)
	}
	d.consistent(t)
}

// TestDeleteFails makes the steps of a deletion fail. No snapshot may be half deleted.
func TestDeleteFails(t *testing.T) {
	d := newDen(t, nil)
	sb := d.create(t, carrel.CreateOptions{})
	a := d.snap(t, sb.ID, carrel.CauseRequest)
	d.applies.fail(func(state.Change) error { return &carrel.Error{Op: "write", Kind: carrel.Exhausted, Hint: "free some"} })
	err := d.DeleteSnapshot(t.Context(), string(a))
	if !errors.Is(err, carrel.Exhausted) || carrel.HintOf(err) == "" {
		t.Errorf("a full disk: %v", err)
	}
	d.applies.fail(nil)
	if sn, err := d.GetSnapshot(t.Context(), string(a)); err != nil || sn.ID != a {
		t.Errorf("after an error it is gone: %v", err)
	}
	d.consistent(t)
	// A content that can't be removed goes at the next start at the latest.
	d.snaps.DeleteFn = func(carrel.SnapshotID) error { return &carrel.Error{Kind: carrel.Internal, Err: errors.New("busy")} }
	if err := d.DeleteSnapshot(t.Context(), string(a)); err != nil {
		t.Error(err)
	}
	if left, _ := d.snaps.List(t.Context()); len(left) != 1 {
		t.Errorf("contents %v", left)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	d.snaps.DeleteFn = nil
	d.open(t, d.opts)
	if left, _ := d.snaps.List(t.Context()); len(left) != 0 {
		t.Errorf("contents after a start: %v", left)
	}
}

// TestScrapAgain shows that the service tries again to remove the content of a deleted snapshot.
func TestScrapAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDen(t, nil)
		sb := d.create(t, carrel.CreateOptions{Timeout: time.Hour})
		a := d.snap(t, sb.ID, carrel.CauseRequest)
		tries := 0
		d.snaps.DeleteFn = func(carrel.SnapshotID) error {
			if tries++; tries < 3 {
				return &carrel.Error{Kind: carrel.Exhausted, Err: errors.New("full")}
			}
			return nil
		}
		if err := d.DeleteSnapshot(t.Context(), string(a)); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if left, _ := d.snaps.List(t.Context()); len(left) != 0 || tries != 3 {
			t.Errorf("contents %v after %d tries", left, tries)
		}
	})
}

// TestTimelineOfDamage gives a service records that should not exist: with missing parents, and
// with circles.
func TestTimelineOfDamage(t *testing.T) {
	owner := carrel.NewID()
	now := time.Now().UTC()
	make := func(n int, parent carrel.SnapshotID) state.SnapshotRecord {
		return state.SnapshotRecord{Snapshot: carrel.Snapshot{ID: carrel.SnapshotID(fmt.Sprintf("s%020d", n)), Sandbox: owner, Parent: parent,
			Created: now.Add(time.Duration(n) * time.Second), Cause: carrel.CauseRequest, Kept: true, Tier: carrel.Sim, Template: baseTemplate.ID},
			Record: state.Record{Sandbox: carrel.Sandbox{ID: owner, Tier: carrel.Sim, Template: baseTemplate.ID}}}
	}
	id := func(n int) carrel.SnapshotID { return carrel.SnapshotID(fmt.Sprintf("s%020d", n)) }
	d := newDen(t, nil,
		make(1, id(3)), make(2, id(1)), make(3, id(2)), // a circle
		make(4, id(4)),  // of one
		make(5, id(99)), // of none
		make(6, id(3)),  // hangs on the circle
		make(7, "not an ID"))
	sb, err := d.Create(t.Context(), carrel.CreateOptions{Template: string(id(6))})
	if err != nil {
		t.Fatal(err)
	}
	check := func(want ...carrel.SnapshotID) {
		t.Helper()
		tl, err := d.Timeline(t.Context(), sb.ID)
		if err != nil {
			t.Fatal(err)
		}
		parents := map[carrel.SnapshotID]carrel.SnapshotID{}
		var got []carrel.SnapshotID
		for _, sn := range tl.Snapshots {
			parents[sn.ID] = sn.Parent
			got = append(got, sn.ID)
		}
		if !slices.Equal(got, want) || tl.Head != want[len(want)-1] {
			t.Errorf("timeline %v at %q, want %v", got, tl.Head, want)
		}
		for at := range parents {
			for n := 0; at != ""; n++ {
				next, ok := parents[at]
				if !ok || n > len(parents) {
					t.Fatalf("not a forest: %v", parents)
				}
				at = next
			}
		}
	}
	check(id(1), id(2), id(3), id(6))
	for _, n := range []int{2, 3, 1, 4, 5} {
		if err := d.DeleteSnapshot(t.Context(), string(id(n))); err != nil {
			t.Fatal(err)
		}
	}
	check(id(6))
	if _, err := d.Rollback(t.Context(), sb.ID, id(7), carrel.RollbackOptions{}); !errors.Is(err, carrel.Invalid) {
		t.Errorf("rollback to another's: %v", err)
	}
}

// TestForkAt has several calls fork one snapshot, which must be in the sandbox's past. The parent
// counts among the living sandboxes. A fork without a free place gets an error that names the
// limit.
func TestForkAt(t *testing.T) {
	d := newDen(t, func(o *service.Options) { o.MaxSandboxes = 6 })
	sb, other := d.create(t, carrel.CreateOptions{}), d.create(t, carrel.CreateOptions{})
	a, strange := d.snap(t, sb.ID, carrel.CauseRequest), d.snap(t, other.ID, carrel.CauseRequest)
	d.snap(t, sb.ID, carrel.CauseRequest)
	before := len(d.timeline(t, sb.ID))
	forks, err := d.Fork(t.Context(), sb.ID, carrel.ForkOptions{Count: 5, At: a})
	if err != nil {
		t.Fatal(err)
	}
	made := 0
	for _, f := range forks {
		switch {
		case f.Err == nil && f.Sandbox.Snapshot == a:
			made++
		case carrel.KindOf(f.Err) != carrel.Exhausted || !strings.Contains(f.Err.Error(), "all 6 sandboxes"):
			t.Errorf("%+v", f)
		}
	}
	if made != 4 || len(d.timeline(t, sb.ID)) != before {
		t.Errorf("%d were made, and the past has %d moments, not %d", made, len(d.timeline(t, sb.ID)), before)
	}
	for at, want := range map[carrel.SnapshotID]carrel.Kind{strange: carrel.Invalid, carrel.NewSnapshotID(): carrel.NotFound} {
		if _, err := d.Fork(t.Context(), sb.ID, carrel.ForkOptions{At: at}); carrel.KindOf(err) != want {
			t.Errorf("at %s: %v", at, err)
		}
	}
	if _, err := d.Fork(t.Context(), sb.ID, carrel.ForkOptions{Count: carrel.MaxForks + 1}); carrel.KindOf(err) != carrel.Invalid {
		t.Errorf("more than there may be: %v", err)
	}
}
