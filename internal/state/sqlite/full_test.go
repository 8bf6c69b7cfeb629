package sqlite

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state/statetest"
)

// TestFull fills the file to a bound. What does not fit says so, what was
// acknowledged stays, and with room again writes go on.
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
