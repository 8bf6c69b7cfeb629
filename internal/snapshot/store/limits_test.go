package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot/store"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestQuota checks that the store refuses a snapshot that would exceed the quota. Before that it
// drops hot copies that it can unpack again.
func TestQuota(t *testing.T) {
	m := newMemory()
	s := open(t, store.Options{Dir: t.TempDir(), Blobs: m, Manual: true, Reserve: -1, Quota: 10 << 20})
	one := mustTake(t, s, content{"a": random(1, 4<<20)})
	two := mustTake(t, s, content{"a": random(2, 4<<20)})
	id := carrel.NewSnapshotID()
	err := take(s, id, content{"a": random(3, 4<<20)})
	wantKind(t, err, carrel.Exhausted)
	for _, part := range []string{"8 MB", "10 MB", "4 MB"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not name %q", err, part)
		}
	}
	if !strings.Contains(carrel.HintOf(err), "quota") {
		t.Errorf("hint %q", carrel.HintOf(err))
	}
	if _, err := s.Get(t.Context(), id); carrel.KindOf(err) != carrel.NotFound {
		t.Fatalf("a refused snapshot: %v", err)
	}
	// Packs also take room. When they exist, the hot copies can go.
	ok(t, s.Flush(t.Context()))
	for _, id := range []carrel.SnapshotID{one, two} {
		if st, err := s.Stat(t.Context(), id); err != nil || st.Hot || !st.Packed {
			t.Errorf("%+v %v", st, err)
		}
	}
	ok(t, take(s, carrel.NewSnapshotID(), content{"a": random(4, 1<<20)}))
	// Over the quota, no snapshot may begin.
	for range 2 {
		err = take(s, carrel.NewSnapshotID(), content{"a": random(5, 1<<20)})
	}
	wantKind(t, err, carrel.Exhausted)
	ok(t, s.Delete(t.Context(), one))
	_, err = s.GC(t.Context())
	ok(t, err)
	ok(t, take(s, carrel.NewSnapshotID(), content{"a": random(6, 1<<20)}))
}

// TestHotCopies checks that the most recently used hot copies within the budget stay. Copies that
// are open or not packed must never be dropped.
func TestHotCopies(t *testing.T) {
	s := open(t, store.Options{Dir: t.TempDir(), Blobs: newMemory(), Manual: true, Reserve: -1, HotBytes: 2 << 20})
	var ids []carrel.SnapshotID
	for i := range 4 {
		ids = append(ids, mustTake(t, s, content{"a": random(uint64(i), 1<<20)}))
	}
	f, err := s.Open(t.Context(), ids[0])
	ok(t, err)
	ok(t, s.Flush(t.Context()))
	hot := func() (out []bool) {
		for _, id := range ids {
			st, err := s.Stat(t.Context(), id)
			ok(t, err)
			out = append(out, st.Hot)
		}
		return out
	}
	if got := hot(); !got[0] || got[1] || got[2] || !got[3] {
		t.Fatalf("hot: %v, want the open one and the newest", got)
	}
	ok(t, f.Close())
	mustRead(t, s, ids[1], content{"a": random(1, 1<<20)})
	unpacked := mustTake(t, s, content{"a": random(9, 1<<20)})
	s.Evict()
	if got := hot(); got[0] || got[1] || got[2] || got[3] {
		t.Fatalf("hot: %v, want none", got)
	}
	mustRead(t, s, unpacked, content{"a": random(9, 1<<20)})
}

// TestFullDisk fills a real, small file system.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=8m,mode=0700")
	testenv.Need(t, "mount", err)
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	m := newMemory()
	s := open(t, store.Options{Dir: filepath.Join(dir, "store"), Blobs: m, Manual: true, Reserve: -1})
	c := content{"a": random(1, 5<<20)}
	id := mustTake(t, s, c)
	err = take(s, carrel.NewSnapshotID(), content{"a": random(2, 5<<20)})
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("not full: %v", err)
	}
	mustRead(t, s, id, c)
	ok(t, s.Flush(t.Context())) // the packs are elsewhere
	ballast := filepath.Join(dir, "ballast")
	s.Evict()
	ok(t, os.WriteFile(ballast, make([]byte, 5<<20), 0o600))
	_, err = s.Open(t.Context(), id)
	wantKind(t, err, carrel.Exhausted)
	d, err := s.Begin(t.Context(), carrel.NewSnapshotID())
	ok(t, err)
	if err := os.WriteFile(filepath.Join(d.Dir(), "a"), make([]byte, 8<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("not full: %v", err)
	}
	// There is no room to write a manifest or a mark. Still a deletion must work.
	ok(t, s.Delete(t.Context(), id))
	_, err = s.Get(t.Context(), id)
	wantKind(t, err, carrel.NotFound)
	ok(t, d.Discard())
	ok(t, os.Remove(ballast))
	ok(t, take(s, carrel.NewSnapshotID(), content{"a": random(3, 5<<20)}))
}

// TestObjectStoreAway stops the object store. Hot copies must still work, Flush must return the
// error, and the postponed work must be done when the object store is back.
func TestObjectStoreAway(t *testing.T) {
	s, m, _ := fresh(t)
	c := content{"a": random(1, 1<<20)}
	packed := mustTake(t, s, c)
	ok(t, s.Flush(t.Context()))
	away := &carrel.Error{Op: "call", Kind: carrel.Unavailable, Err: errors.New("no route")}
	m.fail = func(string, string) error { return away }
	id := mustTake(t, s, c)
	mustRead(t, s, id, c)
	wantKind(t, s.Flush(t.Context()), carrel.Unavailable)
	_, err := s.Open(t.Context(), packed)
	wantKind(t, err, carrel.Unavailable)
	_, err = s.GC(t.Context())
	wantKind(t, err, carrel.Unavailable)
	_, err = s.Get(t.Context(), carrel.NewSnapshotID())
	wantKind(t, err, carrel.Unavailable)
	ok(t, s.Delete(t.Context(), packed))
	_, err = s.Get(t.Context(), packed)
	wantKind(t, err, carrel.NotFound)
	m.fail = nil
	ok(t, s.Flush(t.Context()))
	_, err = s.GC(t.Context())
	ok(t, err)
	if names := m.names("manifests/"); len(names) != 1 {
		t.Fatalf("manifests: %v", names)
	}
	mustRead(t, s, id, c)
}

// TestPacksInBackground checks that the store packs by itself, tries again after a failure, and
// goes on after a restart.
func TestPacksInBackground(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		failures := 3
		m.fail = func(op, name string) error {
			if op != "put" {
				return nil
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			if failures--; failures >= 0 {
				return &carrel.Error{Kind: carrel.Unavailable, Err: errors.New("no route")}
			}
			return nil
		}
		opts := store.Options{Dir: dir, Blobs: m, Reserve: -1}
		s, err := store.Open(t.Context(), opts)
		ok(t, err)
		id := mustTake(t, s, content{"a": random(1, 50_000)})
		time.Sleep(time.Hour)
		synctest.Wait()
		st, err := s.Stat(t.Context(), id)
		ok(t, err)
		if !st.Packed {
			t.Error("not packed after an hour")
		}
		ok(t, s.Close())
		opts.Manual = true
		s, err = store.Open(t.Context(), opts)
		ok(t, err)
		id = mustTake(t, s, content{"a": random(2, 50_000)})
		ok(t, s.Close())
		opts.Manual = false
		s, err = store.Open(t.Context(), opts)
		ok(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		if st, err = s.Stat(t.Context(), id); err != nil || !st.Packed {
			t.Errorf("not packed after a restart: %+v %v", st, err)
		}
		ok(t, s.Close())
	})
}
