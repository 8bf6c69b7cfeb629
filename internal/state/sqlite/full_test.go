package sqlite

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/state/statetest"
)

// TestFull fills the file to a bound. A write that does not fit gives an error, acknowledged writes
// stay, and writes go on when there is room again.
func TestFull(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.write.ExecContext(t.Context(), "PRAGMA max_page_count = 30"); err != nil {
		t.Fatal(err)
	}
	kept := 0
	for range 1000 {
		if err = s.PutSandbox(t.Context(), statetest.Record(time.Now())); err != nil {
			break
		}
		kept++
	}
	if !errors.Is(err, carrel.Exhausted) || carrel.HintOf(err) == "" {
		t.Fatalf("after %d records: %v, want Exhausted with a hint", kept, err)
	}
	if all, err := s.Sandboxes(t.Context()); err != nil || len(all) != kept {
		t.Errorf("%d records of %d, %v", len(all), kept, err)
	}
	if _, err := s.write.ExecContext(t.Context(), "PRAGMA max_page_count = 1000"); err != nil {
		t.Fatal(err)
	}
	if err := s.PutSandbox(t.Context(), statetest.Record(time.Now())); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

// TestChangeFull fills the file to a bound with changes. A change that does not fit leaves nothing
// behind, not even its small parts.
func TestChangeFull(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.write.ExecContext(t.Context(), "PRAGMA max_page_count = 60"); err != nil {
		t.Fatal(err)
	}
	kept := 0
	for err == nil && kept < 1000 {
		r := statetest.Record(time.Now())
		c := state.Change{Put: []state.Record{r}}
		for range 5 {
			c.PutSnapshots = append(c.PutSnapshots, statetest.SnapshotRecord(r, time.Now()))
		}
		if err = s.Apply(t.Context(), c); err == nil {
			kept++
		}
	}
	if !errors.Is(err, carrel.Exhausted) || carrel.HintOf(err) == "" || kept == 0 {
		t.Fatalf("after %d changes: %v, want Exhausted with a hint", kept, err)
	}
	if all, err := s.Sandboxes(t.Context()); err != nil || len(all) != kept {
		t.Errorf("%d records of %d, %v", len(all), kept, err)
	}
	if all, err := s.Snapshots(t.Context()); err != nil || len(all) != 5*kept {
		t.Errorf("%d snapshots of %d, %v", len(all), 5*kept, err)
	}
}

// TestChangeBroken makes SQLite refuse the last statement of a change. The statements before it are
// undone. The same change without that statement then succeeds.
func TestChangeBroken(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.write.ExecContext(t.Context(), `CREATE TRIGGER broken BEFORE DELETE ON snapshots
		BEGIN SELECT RAISE(ABORT, 'broken'); END`); err != nil {
		t.Fatal(err)
	}
	r := statetest.Record(time.Now())
	snap := statetest.SnapshotRecord(r, time.Now())
	c := state.Change{Put: []state.Record{r}, PutSnapshots: []state.SnapshotRecord{snap}}
	c.DeleteSnapshots = []carrel.SnapshotID{snap.Snapshot.ID}
	if err := s.Apply(t.Context(), c); carrel.KindOf(err) != carrel.Internal {
		t.Errorf("Apply: %v, want Internal", err)
	}
	if all, err := s.Sandboxes(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%d records, %v", len(all), err)
	}
	c.DeleteSnapshots = nil
	if err := s.Apply(t.Context(), c); err != nil {
		t.Errorf("the change without its broken part: %v", err)
	}
}
