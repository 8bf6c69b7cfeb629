package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/state/sqlite"
	"github.com/carrel-dev/carrel/internal/state/statetest"
)

// BenchmarkPut measures one durable write.
func BenchmarkPut(b *testing.B) {
	for name, parallel := range map[string]bool{"alone": false, "parallel": true} {
		b.Run(name, func(b *testing.B) {
			s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "state.db"))
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			put := func() {
				if err := s.PutSandbox(b.Context(), statetest.Record(time.Now())); err != nil {
					b.Error(err)
				}
			}
			if !parallel {
				for b.Loop() {
					put()
				}
				return
			}
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					put()
				}
			})
		})
	}
}

// fill writes n paused sandboxes with two snapshots each to a new file.
func fill(tb testing.TB, n int) (path string) {
	tb.Helper()
	path = filepath.Join(tb.TempDir(), "state.db")
	s, err := sqlite.Open(tb.Context(), path)
	if err != nil {
		tb.Fatal(err)
	}
	defer s.Close()
	const batch = 500
	for done := 0; done < n; done += batch {
		var c state.Change
		for range min(batch, n-done) {
			r := statetest.Record(time.Now())
			snap := statetest.SnapshotRecord(r, time.Now())
			r.Paused = snap.Snapshot.ID
			c.Put = append(c.Put, r)
			c.PutSnapshots = append(c.PutSnapshots, snap, statetest.SnapshotRecord(r, time.Now()))
		}
		if err := s.Apply(tb.Context(), c); err != nil {
			tb.Fatal(err)
		}
	}
	return path
}

// load opens a file and reads everything, as a daemon does when it starts.
func load(tb testing.TB, path string) (sandboxes, snapshots int) {
	tb.Helper()
	s, err := sqlite.Open(tb.Context(), path)
	if err != nil {
		tb.Fatal(err)
	}
	defer s.Close()
	records, err := s.Sandboxes(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	snaps, err := s.Snapshots(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return len(records), len(snaps)
}

// TestMany opens the file of 10,000 paused sandboxes. BenchmarkLoad measures how long that takes.
func TestMany(t *testing.T) {
	n := 10_000
	if testing.Short() {
		n = 300
	}
	if sandboxes, snapshots := load(t, fill(t, n)); sandboxes != n || snapshots != 2*n {
		t.Errorf("%d sandboxes and %d snapshots of %d", sandboxes, snapshots, n)
	}
}

// BenchmarkLoad measures a daemon's start with 10,000 paused sandboxes.
func BenchmarkLoad(b *testing.B) {
	path := fill(b, 10_000)
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			s, err := sqlite.Open(b.Context(), path)
			if err != nil {
				b.Fatal(err)
			}
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("open and read", func(b *testing.B) {
		for b.Loop() {
			load(b, path)
		}
	})
}
