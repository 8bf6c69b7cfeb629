package store_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot"
	"github.com/carrel-dev/carrel/internal/snapshot/disk"
	"github.com/carrel-dev/carrel/internal/snapshot/store"
)

// packHarm damages a pack of a store whose blobs lie on this machine's disk, or in an object store.
type packHarm struct {
	opts store.Options
	dir  string  // of the blobs on the disk
	m    *memory // the object store; nil: there is none
}

func newPackHarm(t *testing.T, remote bool) *packHarm {
	h := &packHarm{opts: store.Options{Dir: memoryDir(t), Manual: true, Reserve: -1}}
	if remote {
		h.m = newMemory()
		h.opts.Blobs, h.opts.Shared = h.m, true
		return h
	}
	h.dir = memoryDir(t)
	blobs, err := disk.Open(h.dir)
	ok(t, err)
	t.Cleanup(func() { ok(t, blobs.Close()) })
	h.opts.Blobs = blobs
	return h
}

// packs lists the names of all packs.
func (h *packHarm) packs(t *testing.T) (names []string) {
	t.Helper()
	ok(t, h.opts.Blobs.List(t.Context(), "packs/", func(b snapshot.BlobInfo) error {
		names = append(names, b.Name)
		return nil
	}))
	return names
}

// size is the sum of all packs' sizes, except these.
func (h *packHarm) size(t *testing.T, except string) (n int64) {
	t.Helper()
	ok(t, h.opts.Blobs.List(t.Context(), "packs/", func(b snapshot.BlobInfo) error {
		if b.Name != except {
			n += b.Size
		}
		return nil
	}))
	return n
}

// change replaces a pack's bytes by the result of fn; nil removes the pack.
func (h *packHarm) change(t *testing.T, name string, fn func([]byte) []byte) {
	t.Helper()
	if h.m != nil {
		h.m.change(name, fn)
		return
	}
	file := filepath.Join(h.dir, name)
	b, err := os.ReadFile(file)
	ok(t, err)
	if b = fn(b); b == nil {
		ok(t, os.Remove(file))
		return
	}
	ok(t, os.WriteFile(file, b, 0o600))
}

// harmed runs a trial for each kind of blobs, and for damage before and after a restart.
func harmed(t *testing.T, harm func([]byte) []byte) {
	for _, remote := range []bool{false, true} {
		for _, restart := range []bool{false, true} {
			name := map[bool]string{false: "local", true: "object store"}[remote] +
				map[bool]string{false: "", true: ", restarted"}[restart]
			t.Run(name, func(t *testing.T) { newPackHarm(t, remote).trial(t, harm, restart) })
		}
	}
}

// trial damages the pack under three snapshots. One has no hot copy any more, one has one, and one
// is packed after the damage. Only the first may be lost.
func (h *packHarm) trial(t *testing.T, harm func([]byte) []byte, restart bool) {
	s := open(t, h.opts)
	shared := random(1, 3<<20)
	with := func(seed uint64) content {
		return content{"pages.img": append(slices.Clone(shared), random(seed, 64<<10)...)}
	}
	cold := mustTake(t, s, with(2))
	ok(t, s.Flush(t.Context()))
	s.Evict()
	pack := h.packs(t)[0]
	hot := mustTake(t, s, with(3))
	ok(t, s.Flush(t.Context()))
	if len(h.packs(t)) != 2 || h.size(t, pack) > 1<<20 {
		t.Fatalf("the second snapshot does not lie on the first one's pack: %v", h.packs(t))
	}
	h.change(t, pack, harm)
	if restart {
		ok(t, s.Close())
		s = open(t, h.opts)
	}
	refused := func() {
		t.Helper()
		_, err := read(s, cold)
		wantKind(t, err, carrel.Invalid)
		if !strings.Contains(err.Error(), strings.TrimPrefix(pack, "packs/")) ||
			carrel.HintOf(err) == "" {
			t.Fatalf("the error does not name the pack or has no hint: %v", err)
		}
	}
	if h.m != nil {
		refused() // of a pack of the right size in an object store, only a reader sees the damage
	}
	mustRead(t, s, hot, with(3))
	later := mustTake(t, s, with(4))
	ok(t, s.Flush(t.Context()))
	for _, id := range []carrel.SnapshotID{hot, later} {
		if st, err := s.Stat(t.Context(), id); err != nil || !st.Packed {
			t.Fatalf("%s is not packed: %+v, %v", id, st, err)
		}
	}
	if u, err := s.Usage(t.Context()); err != nil || u.Packs != h.size(t, pack) {
		t.Fatalf("packs of %d bytes are counted, want %d: %v", u.Packs, h.size(t, pack), err)
	}
	there := slices.Contains(h.packs(t), pack)
	_, err := s.GC(t.Context())
	ok(t, err)
	s.Evict()
	mustRead(t, s, hot, with(3))
	mustRead(t, s, later, with(4))
	refused()
	if there != slices.Contains(h.packs(t), pack) {
		t.Fatal("the damaged pack was deleted, although a snapshot uses it")
	}
	list, err := s.List(t.Context())
	if ok(t, err); !slices.Contains(list, cold) {
		t.Fatal("the snapshot without a hot copy was deleted")
	}
}

// TestLostPack deletes a pack behind the store's back.
func TestLostPack(t *testing.T) { harmed(t, func([]byte) []byte { return nil }) }

// TestFlippedPack flips a bit in the middle of a pack.
func TestFlippedPack(t *testing.T) { harmed(t, func(b []byte) []byte { return flip(b, len(b)/2) }) }

// TestCutPack cuts a pack off.
func TestCutPack(t *testing.T) { harmed(t, func(b []byte) []byte { return b[:len(b)/3] }) }

// TestPackAgainLater stops the store before it has packed a snapshot again. The next one must do
// it, and must not drop the hot copy before.
func TestPackAgainLater(t *testing.T) {
	h := newPackHarm(t, true)
	s := open(t, h.opts)
	c := content{"pages.img": random(1, 1<<20)}
	cold := mustTake(t, s, c)
	ok(t, s.Flush(t.Context()))
	s.Evict()
	id := mustTake(t, s, c)
	ok(t, s.Flush(t.Context()))
	h.change(t, h.packs(t)[0], func([]byte) []byte { return nil })
	_, err := read(s, cold)
	wantKind(t, err, carrel.Invalid)
	away := errors.New("the object store is away")
	h.m.fail = func(op, _ string) error {
		if op == "put" {
			return away
		}
		return nil
	}
	if err := s.Flush(t.Context()); !errors.Is(err, away) {
		t.Fatalf("Flush: %v", err)
	}
	s.Evict()
	ok(t, s.Close())
	h.m.fail = nil
	s = open(t, h.opts)
	s.Evict()
	mustRead(t, s, id, c)
	if st, err := s.Stat(t.Context(), id); err != nil || st.Packed || !st.Hot {
		t.Fatalf("%+v, %v", st, err)
	}
	ok(t, s.Flush(t.Context()))
	s.Evict()
	mustRead(t, s, id, c)
	_, err = read(s, cold) // it had no hot copy
	wantKind(t, err, carrel.Invalid)
}

// TestGCFindsLostPack checks that a GC notices a pack that is gone, without a new snapshot.
func TestGCFindsLostPack(t *testing.T) {
	for _, remote := range []bool{false, true} {
		h := newPackHarm(t, remote)
		s := open(t, h.opts)
		c := content{"pages.img": random(1, 1<<20)}
		id := mustTake(t, s, c)
		ok(t, s.Flush(t.Context()))
		h.change(t, h.packs(t)[0], func([]byte) []byte { return nil })
		_, err := s.GC(t.Context())
		ok(t, err)
		ok(t, s.Flush(t.Context()))
		s.Evict()
		mustRead(t, s, id, c)
	}
}

// TestPackChecks counts the reads of packs: a pack on this machine's disk is read once.
func TestPackChecks(t *testing.T) {
	h := newPackHarm(t, false)
	counted := &countedGets{Blobs: h.opts.Blobs, Marker: h.opts.Blobs.(snapshot.Marker)}
	h.opts.Blobs = counted
	s := open(t, h.opts)
	c := content{"pages.img": random(1, 1<<20)}
	pack := func(want int) {
		t.Helper()
		before := counted.packs
		mustTake(t, s, c)
		ok(t, s.Flush(t.Context()))
		if n := counted.packs - before; n != want {
			t.Fatalf("packs were read %d times, want %d", n, want)
		}
	}
	pack(0)
	pack(0) // this store has just written it
	ok(t, s.Close())
	s = open(t, h.opts)
	pack(1)
	pack(0)
	h.change(t, h.packs(t)[0], slices.Clone) // written again, with the same bytes
	pack(1)
}

type countedGets struct {
	snapshot.Blobs
	snapshot.Marker
	packs int
}

func (c *countedGets) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser,
	error) {
	if strings.HasPrefix(name, "packs/") {
		c.packs++
	}
	return c.Blobs.Get(ctx, name, offset, length)
}
