package service_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/service"
	"github.com/carrel-dev/carrel/internal/snapshot"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/state/memory"
)

// sweepDriver is a momentDriver whose instances outlive the service.
type sweepDriver struct{ *momentDriver }

var _ driver.Sweeper = sweepDriver{}

func (d sweepDriver) Sweep(ctx context.Context, known []carrel.ID) error {
	for _, id := range d.ids() {
		if !slices.Contains(known, id) {
			if err := d.DestroyStray(ctx, id); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d sweepDriver) DestroyStray(ctx context.Context, id carrel.ID) error {
	if in := d.get(id); in != nil {
		return in.Destroy(ctx)
	}
	return nil
}

// Create leaves a file, as every Sweeper does.
func (d sweepDriver) Create(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	if err := os.WriteFile(filepath.Join(s.Dir, "disk"), nil, 0o600); err != nil {
		return nil, err
	}
	return d.momentDriver.Create(ctx, s)
}

// lostDen makes a den whose sandboxes outlive a service.
func lostDen(t *testing.T) *den {
	return newDen(t, func(o *service.Options) {
		o.KillOnClose = false
		for _, drv := range o.Drivers.All() {
			o.Drivers = driver.NewRegistry(sweepDriver{drv.(*momentDriver)})
		}
	})
}

// next closes the service and opens another one on the same directories. With fresh, all records
// are lost in between.
func (d *den) next(t *testing.T, fresh bool) {
	t.Helper()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if fresh {
		d.store.Store, d.applies = memory.Open(), nil
	}
	d.Service = d.open(t, d.opts)
}

// unclaimedIDs lists what has no record.
func (d *den) unclaimedIDs(t *testing.T) []string {
	t.Helper()
	list, err := d.Unclaimed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{}
	for _, u := range list {
		if u.Reason == "" || u.Found.IsZero() || u.Expires.Sub(u.Found) < 24*time.Hour {
			t.Errorf("%+v", u)
		}
		ids = append(ids, u.ID)
	}
	return ids
}

// TestRecordsLost loses all records of a paused sandbox, a running one and a requested snapshot.
// Nothing is deleted or killed. A repair brings the paused sandbox and the snapshots back.
func TestRecordsLost(t *testing.T) {
	d := lostDen(t)
	paused := d.create(t, carrel.CreateOptions{Timeout: time.Hour, Metadata: map[string]string{"k": "v"}, Env: map[string]string{"A": "b"}})
	running := d.create(t, carrel.CreateOptions{Timeout: time.Hour})
	kept, err := d.Snapshot(t.Context(), running.ID, carrel.SnapshotOptions{Name: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	before := d.snap(t, paused.ID, carrel.CauseInterval)
	at, err := d.Pause(t.Context(), paused.ID, carrel.PauseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d.next(t, true)
	want := []string{string(running.ID), string(kept.ID), string(before), string(at.Snapshot)}
	slices.Sort(want)
	if got := d.unclaimedIDs(t); !slices.Equal(got, want) {
		t.Fatalf("unclaimed: %v, want %v", got, want)
	}
	if d.moments.get(running.ID) == nil {
		t.Fatal("the running sandbox was ended")
	}
	if _, err := d.Get(t.Context(), paused.ID); !errors.Is(err, carrel.NotFound) {
		t.Fatalf("of a sandbox without a record: %v", err)
	}

	d.next(t, false) // one more start changes nothing
	if got := d.unclaimedIDs(t); !slices.Equal(got, want) {
		t.Fatalf("unclaimed after another start: %v, want %v", got, want)
	}
	for _, id := range []string{string(before), string(at.Snapshot), string(kept.ID)} {
		if err := d.Reclaim(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if got := d.unclaimedIDs(t); !slices.Equal(got, []string{string(running.ID)}) {
		t.Fatalf("unclaimed after the repair: %v", got)
	}
	sb, _, err := d.Resume(t.Context(), paused.ID, carrel.ResumeOptions{})
	if err != nil || sb.Metadata["k"] != "v" || sb.State != carrel.Running {
		t.Errorf("resumed: %+v, %v", sb, err)
	}
	if sn, err := d.GetSnapshot(t.Context(), "mine"); err != nil || sn.ID != kept.ID || !sn.Kept {
		t.Errorf("the named snapshot: %+v, %v", sn, err)
	}

	err = d.Reclaim(t.Context(), string(running.ID))
	if !errors.Is(err, carrel.Unsupported) || carrel.HintOf(err) == "" {
		t.Errorf("reclaim of a running sandbox: %v", err)
	}
	if err := d.Discard(t.Context(), string(running.ID)); err != nil {
		t.Fatal(err)
	}
	if d.moments.get(running.ID) != nil || len(d.unclaimedIDs(t)) != 0 {
		t.Error("the sandbox is still there")
	}
	if _, err := os.Stat(filepath.Join(d.dir, string(running.ID))); err == nil {
		t.Error("its directory is still there")
	}
	if err := d.Discard(t.Context(), string(running.ID)); !errors.Is(err, carrel.NotFound) {
		t.Errorf("once more: %v", err)
	}
	d.next(t, false)
	if got := d.unclaimedIDs(t); len(got) != 0 {
		t.Errorf("after the repair and another start: %v", got)
	}
}

// TestOlderRecords puts the records of an earlier time back: the sandbox ran then, and was paused
// later. It is paused again, at its newest moment, and nothing of it is deleted.
func TestOlderRecords(t *testing.T) {
	for _, then := range []carrel.State{carrel.Running, carrel.Paused} {
		t.Run(string(then), func(t *testing.T) {
			d := lostDen(t)
			sb := d.create(t, carrel.CreateOptions{Timeout: time.Hour})
			if then == carrel.Paused {
				if _, err := d.Pause(t.Context(), sb.ID, carrel.PauseOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			older := memory.Open()
			copyRecords(t, d.store.Store, older)
			if then == carrel.Paused {
				if _, _, err := d.Resume(t.Context(), sb.ID, carrel.ResumeOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			at, err := d.Pause(t.Context(), sb.ID, carrel.PauseOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if then == carrel.Paused { // the newest pause alone is kept
				for _, sn := range d.timelineAll(t) {
					if sn != at.Snapshot {
						delete(d.snaps.done, sn)
					}
				}
			}
			d.store.Store, d.applies = older, nil
			d.Service = d.open(t, d.opts)
			got, err := d.Get(t.Context(), sb.ID)
			if err != nil || got.State != carrel.Paused || got.Snapshot != at.Snapshot {
				t.Errorf("%+v, %v; want paused at %s", got, err, at.Snapshot)
			}
			if _, _, err := d.Resume(t.Context(), sb.ID, carrel.ResumeOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// timelineAll lists the contents of the store.
func (d *den) timelineAll(t *testing.T) []carrel.SnapshotID {
	t.Helper()
	ids, err := d.snaps.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// copyRecords copies all records of one store into another.
func copyRecords(t *testing.T, from, to state.Store) {
	t.Helper()
	recs, err := from.Sandboxes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	snaps, err := from.Snapshots(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := to.Apply(t.Context(), state.Change{Put: recs, PutSnapshots: snaps}); err != nil {
		t.Fatal(err)
	}
}

// TestDeletedStaysDeleted shows that a deletion that a caller asked for is finished by the next
// service, although the content has no record.
func TestDeletedStaysDeleted(t *testing.T) {
	d := lostDen(t)
	sb := d.create(t, carrel.CreateOptions{Timeout: time.Hour})
	sn, err := d.Snapshot(t.Context(), sb.ID, carrel.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d.snaps.DeleteFn = func(carrel.SnapshotID) error { return errors.New("the disk does not answer") }
	if err := d.DeleteSnapshot(t.Context(), string(sn.ID)); err != nil {
		t.Fatal(err)
	}
	if err := d.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(d.dir, string(sb.ID)), 0o700); err != nil { // as a crash leaves it
		t.Fatal(err)
	}
	d.snaps.DeleteFn = nil
	d.next(t, false)
	if got := d.unclaimedIDs(t); len(got) != 0 || len(d.timelineAll(t)) != 0 {
		t.Errorf("unclaimed: %v; contents: %v", got, d.timelineAll(t))
	}
	if _, err := os.Stat(filepath.Join(d.dir, string(sb.ID))); err == nil {
		t.Error("the directory is still there")
	}
}

// TestUnclaimedDamage lists a content whose manifest says nothing useful, refuses to reclaim it,
// and deletes it on request.
func TestUnclaimedDamage(t *testing.T) {
	d := lostDen(t)
	sb := d.create(t, carrel.CreateOptions{Timeout: time.Hour})
	other, err := d.Snapshot(t.Context(), sb.ID, carrel.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	meta := d.snaps.done[other.ID].Meta
	for _, m := range []snapshot.Manifest{{}, {Meta: []byte(`{`)}, {Meta: meta}, {Meta: []byte(`{"Snapshot":{"id":"../../x"}}`)}} {
		m.ID = carrel.NewSnapshotID()
		d.snaps.done[m.ID] = m
		d.next(t, false)
		list, err := d.Unclaimed(t.Context())
		if err != nil || len(list) != 1 || list[0].Problem == "" {
			t.Fatalf("%+v, %v", list, err)
		}
		if err := d.Reclaim(t.Context(), string(m.ID)); !errors.Is(err, carrel.Invalid) || carrel.HintOf(err) == "" {
			t.Errorf("reclaim: %v", err)
		}
		if err := d.Discard(t.Context(), string(m.ID)); err != nil {
			t.Error(err)
		}
	}
	for _, id := range []string{"", "..", string(other.ID), string(sb.ID)} { // nothing with a record can be discarded
		if err := d.Discard(t.Context(), id); !errors.Is(err, carrel.NotFound) {
			t.Errorf("discard of %q: %v", id, err)
		}
	}
}

// TestNeverAnnounced removes the content of a snapshot whose service died before it wrote the
// record.
func TestNeverAnnounced(t *testing.T) {
	d := lostDen(t)
	sb := d.create(t, carrel.CreateOptions{Timeout: time.Hour})
	broken := errors.New("the store is gone")
	d.snaps.DeleteFn = func(carrel.SnapshotID) error { return broken }
	d.applies.fail(func(c state.Change) error {
		if len(c.PutSnapshots) > 0 {
			return broken
		}
		return nil
	})
	if _, err := d.Snapshot(t.Context(), sb.ID, carrel.SnapshotOptions{}); err == nil {
		t.Fatal("a snapshot without a record")
	}
	if len(d.timelineAll(t)) != 1 {
		t.Fatal("there is no content: this test shows nothing")
	}
	d.snaps.DeleteFn = nil
	d.applies.fail(nil)
	d.next(t, false)
	if got := d.unclaimedIDs(t); len(got) != 0 || len(d.timelineAll(t)) != 0 {
		t.Errorf("unclaimed: %v; contents: %v", got, d.timelineAll(t))
	}
}

// TestDiedBeforeItsRecord finds what a creation left that died before its record was written: an
// empty directory. That is removed, and not listed.
func TestDiedBeforeItsRecord(t *testing.T) {
	d := lostDen(t)
	running := d.create(t, carrel.CreateOptions{Timeout: time.Hour})
	dir := filepath.Join(d.dir, string(carrel.NewID()))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d.next(t, false)
	if got := d.unclaimedIDs(t); len(got) > 0 {
		t.Errorf("unclaimed: %v", got)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the empty directory: %v", err)
	}
	if d.moments.get(running.ID) == nil {
		t.Error("the running sandbox was ended")
	}
}
