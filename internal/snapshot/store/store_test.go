package store_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/snapshot"
	"github.com/carrel-dev/carrel/internal/snapshot/store"
)

// content holds the files of a snapshot.
type content map[string][]byte

// random returns n bytes that don't compress, the same for the same seed.
func random(seed uint64, n int) []byte {
	b := make([]byte, n)
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	_, _ = rand.NewChaCha8(key).Read(b)
	return b
}

func open(t testing.TB, opts store.Options) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// memoryDir returns a directory where fsync costs nothing, if there is one. These tests kill only
// processes, never the machine.
func memoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "carrel-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// fresh opens an empty store that packs only in Flush.
func fresh(t testing.TB) (*store.Store, *memory, store.Options) {
	t.Helper()
	m := newMemory()
	opts := store.Options{Dir: memoryDir(t), Blobs: m, Manual: true, Reserve: -1, HotBytes: -1}
	return open(t, opts), m, opts
}

func write(dir string, c content) error {
	for name, b := range c {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func manifestOf(id carrel.SnapshotID) snapshot.Manifest {
	return snapshot.Manifest{ID: id, Info: driver.SnapshotInfo{Driver: "test"}, Meta: []byte(`{"k":1}`)}
}

// take commits a snapshot with a fresh ID.
func take(s *store.Store, id carrel.SnapshotID, c content) error {
	ctx := context.Background()
	d, err := s.Begin(ctx, id)
	if err != nil {
		return err
	}
	if err := write(d.Dir(), c); err != nil {
		return errors.Join(err, d.Discard())
	}
	if _, err := d.Commit(ctx, manifestOf(id)); err != nil {
		return errors.Join(err, d.Discard())
	}
	return d.Discard()
}

func mustTake(t testing.TB, s *store.Store, c content) carrel.SnapshotID {
	t.Helper()
	id := carrel.NewSnapshotID()
	if err := take(s, id, c); err != nil {
		t.Fatal(err)
	}
	return id
}

// read opens a snapshot, verifies it and returns its files.
func read(s *store.Store, id carrel.SnapshotID) (content, error) {
	f, err := s.Open(context.Background(), id)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Verify(context.Background()); err != nil {
		return nil, err
	}
	c := content{}
	list, err := os.ReadDir(f.Dir())
	if err != nil {
		return nil, err
	}
	for _, de := range list {
		if c[de.Name()], err = os.ReadFile(filepath.Join(f.Dir(), de.Name())); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func mustRead(t testing.TB, s *store.Store, id carrel.SnapshotID, want content) {
	t.Helper()
	got, err := read(s, id)
	if err != nil {
		t.Fatal(err)
	}
	if !maps.EqualFunc(got, want, bytes.Equal) {
		t.Fatalf("%s: the content is another", id)
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantKind(t testing.TB, err error, kind carrel.Kind) {
	t.Helper()
	if carrel.KindOf(err) != kind {
		t.Fatalf("got %v (%s), want %s", err, carrel.KindOf(err), kind)
	}
}

func TestLifeOfASnapshot(t *testing.T) {
	s, m, opts := fresh(t)
	ctx := t.Context()
	c := content{"pages.img": append(random(1, 3<<20), make([]byte, 1<<20)...), "state": random(2, 100_001), "empty": {}}
	id := mustTake(t, s, c)
	mustRead(t, s, id, c)
	st, err := s.Stat(ctx, id)
	ok(t, err)
	if want := (snapshot.Stat{Size: 4<<20 + 100_001, New: -1, Hot: true}); st != want {
		t.Fatalf("stat %+v, want %+v", st, want)
	}
	ok(t, s.Flush(ctx))
	st, err = s.Stat(ctx, id)
	ok(t, err)
	if !st.Packed || st.Hot || st.New < 3<<20 || st.New > 3<<20+200_000 {
		t.Fatalf("after packing: %+v", st)
	}
	mustRead(t, s, id, c) // unpacked
	again := open(t, store.Options{Dir: memoryDir(t), Blobs: m, Shared: true, Reserve: -1})
	got, err := again.Get(ctx, id)
	ok(t, err)
	if got.Size != 4<<20+100_001 || string(got.Meta) != `{"k":1}` {
		t.Fatalf("manifest elsewhere: %+v", got)
	}
	mustRead(t, again, id, c)
	ok(t, s.Close())
	s = open(t, opts)
	mustRead(t, s, id, c)
	ok(t, s.Delete(ctx, id))
	ok(t, s.Delete(ctx, id))
	_, err = s.Get(ctx, id)
	wantKind(t, err, carrel.NotFound)
	_, err = s.Open(ctx, id)
	wantKind(t, err, carrel.NotFound)
	_, err = s.GC(ctx)
	ok(t, err)
	if names := m.names(""); len(names) != 0 {
		t.Fatalf("left: %v", names)
	}
}
