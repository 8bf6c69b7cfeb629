package service_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/carrel-dev/carrel"
)

// TestSetMetadata changes labels of a sandbox that runs and of one that is paused. A snapshot keeps
// the labels that it was taken with.
func TestSetMetadata(t *testing.T) {
	d := newDen(t, nil)
	sb := d.create(t, carrel.CreateOptions{Metadata: map[string]string{"team": "search", "old": "1"}})
	snap, err := d.Snapshot(t.Context(), sb.ID, carrel.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]string{"team": "index", "new": ""}
	change := carrel.MetadataChange{Set: set, Remove: []string{"old", "never"}}
	got, err := d.SetMetadata(t.Context(), sb.ID, change)
	want := "map[new: team:index]"
	if err != nil || fmt.Sprint(got.Metadata) != want {
		t.Fatalf("%v, %v", got.Metadata, err)
	}
	set["team"] = "changed"
	if now, _ := d.Get(t.Context(), sb.ID); fmt.Sprint(now.Metadata) != want {
		t.Errorf("a change of the caller's map reached the service: %v", now.Metadata)
	}
	if page, err := d.List(t.Context(), carrel.ListOptions{Metadata: map[string]string{"team": "index"}}); err != nil || len(page.Sandboxes) != 1 {
		t.Errorf("found %+v, %v", page, err)
	}
	if _, err := d.Pause(t.Context(), sb.ID, carrel.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err = d.SetMetadata(t.Context(), sb.ID, carrel.MetadataChange{Remove: []string{"new"}})
	if err != nil || got.State != carrel.Paused || fmt.Sprint(got.Metadata) != "map[team:index]" {
		t.Errorf("paused: %+v, %v", got, err)
	}
	if rec, err := d.store.GetSandbox(t.Context(), sb.ID); err != nil || fmt.Sprint(rec.Sandbox.Metadata) != "map[team:index]" {
		t.Errorf("recorded %+v, %v", rec.Sandbox, err)
	}
	if from := d.create(t, carrel.CreateOptions{Template: string(snap.ID)}); from.Metadata["old"] != "" {
		t.Errorf("a sandbox from a snapshot has labels %v", from.Metadata)
	}
	if got, err = d.Rollback(t.Context(), sb.ID, snap.ID, carrel.RollbackOptions{}); err != nil || got.Metadata["team"] != "index" {
		t.Errorf("a rollback brings old labels back: %v, %v", got.Metadata, err)
	}
	for what, c := range map[string]carrel.MetadataChange{
		"a key is empty":     {Set: map[string]string{"": "x"}},
		"is not UTF-8":       {Set: map[string]string{"x": "\xff"}},
		"at most 65536 may":  {Set: map[string]string{"x": strings.Repeat("y", (64 << 10))}},
		"65537 bytes of key": {Set: map[string]string{"z": strings.Repeat("y", (64<<10)-len("team")-len("index"))}},
	} {
		if _, err := d.SetMetadata(t.Context(), sb.ID, c); carrel.KindOf(err) != carrel.Invalid || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := d.SetMetadata(t.Context(), carrel.NewID(), change); carrel.KindOf(err) != carrel.NotFound {
		t.Error(err)
	}
}

// TestSetMetadataAtOnce sets labels from many sides while the sandbox pauses and resumes. None is lost.
func TestSetMetadataAtOnce(t *testing.T) {
	d := newDen(t, nil)
	sb := d.create(t, carrel.CreateOptions{})
	const sides, times = 4, 15
	var wg sync.WaitGroup
	wg.Go(func() {
		for range times {
			_, err := d.Pause(t.Context(), sb.ID, carrel.PauseOptions{})
			if err == nil {
				_, _, err = d.Resume(t.Context(), sb.ID, carrel.ResumeOptions{})
			}
			if err != nil {
				t.Error(err)
			}
		}
	})
	for side := range sides {
		wg.Go(func() {
			for i := range times {
				c := carrel.MetadataChange{Set: map[string]string{fmt.Sprintf("%d.%d", side, i): "x"}}
				if _, err := d.SetMetadata(t.Context(), sb.ID, c); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	rec, err := d.store.GetSandbox(t.Context(), sb.ID)
	if now, _ := d.Get(t.Context(), sb.ID); err != nil || len(now.Metadata) != sides*times || len(rec.Sandbox.Metadata) != sides*times {
		t.Errorf("%d labels, %d recorded, %v", len(now.Metadata), len(rec.Sandbox.Metadata), err)
	}
}
