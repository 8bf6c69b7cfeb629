package store_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot/store"
)

// takeIn commits a snapshot in a timeline.
func takeIn(t *testing.T, s *store.Store, line string, c content) carrel.SnapshotID {
	t.Helper()
	id := carrel.NewSnapshotID()
	d, err := s.Begin(t.Context(), id)
	ok(t, err)
	ok(t, write(d.Dir(), c))
	m := manifestOf(id)
	m.Line = line
	_, err = d.Commit(t.Context(), m)
	ok(t, err)
	return id
}

// TestReplacedCopies checks that the newest snapshot of each timeline keeps its hot copy, and so
// does one that was opened lately. This must also hold after a restart.
func TestReplacedCopies(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		opts := store.Options{Dir: dir, Blobs: newMemory(), Manual: true, Reserve: -1}
		s, err := store.Open(t.Context(), opts)
		ok(t, err)
		var ids []carrel.SnapshotID
		add := func(line string) {
			ids = append(ids, takeIn(t, s, line, content{"pages.img": random(uint64(len(ids)), 100_000)}))
			time.Sleep(time.Second)
		}
		hot := func(want ...bool) {
			t.Helper()
			for i, id := range ids {
				st, err := s.Stat(t.Context(), id)
				ok(t, err)
				if st.Hot != want[i] {
					t.Errorf("copy %d: hot is %v, want %v", i, st.Hot, want[i])
				}
			}
		}
		add("a")
		add("a")
		add("b")
		add("")
		hot(true, true, true, true)
		ok(t, s.Flush(t.Context()))
		hot(false, true, true, true)
		// Opening the first one again brings its hot copy back for a while.
		mustRead(t, s, ids[0], content{"pages.img": random(0, 100_000)})
		add("b")
		ok(t, s.Flush(t.Context()))
		hot(true, true, false, true, true)
		time.Sleep(11 * time.Minute)
		ok(t, s.Close())
		s, err = store.Open(t.Context(), opts)
		ok(t, err)
		add("c")
		ok(t, s.Flush(t.Context()))
		hot(false, true, false, true, true, true)
		mustRead(t, s, ids[2], content{"pages.img": random(2, 100_000)})
		ok(t, s.Close())
	})
}

// TestSettle checks that a new snapshot is not packed for a moment. If it is deleted before that,
// it is never packed.
func TestSettle(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s, err := store.Open(t.Context(), store.Options{Dir: dir, Blobs: m, Reserve: -1})
		ok(t, err)
		gone := mustTake(t, s, content{"a": random(1, 50_000)})
		kept := mustTake(t, s, content{"a": random(2, 50_000)})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if st, err := s.Stat(t.Context(), kept); err != nil || st.Packed {
			t.Errorf("packed at once: %+v, %v", st, err)
		}
		ok(t, s.Delete(t.Context(), gone))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if st, err := s.Stat(t.Context(), kept); err != nil || !st.Packed {
			t.Errorf("not packed: %+v, %v", st, err)
		}
		if u, err := s.Usage(t.Context()); err != nil || u.Packs > 60_000 {
			t.Errorf("what was deleted was packed: %+v, %v", u, err)
		}
		ok(t, s.Close())
	})
}
