package store_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot/store"
)

// TestHammer runs all operations at once. Existing snapshots must be whole, deleted ones must be
// gone, and in the end nothing may be left.
func TestHammer(t *testing.T) {
	m := newMemory()
	opts := store.Options{Dir: memoryDir(t), Blobs: m, Shared: true, Reserve: -1, HotBytes: 1 << 20}
	s := open(t, opts)
	ctx := t.Context()
	base := random(9, 256<<10)
	of := func(seed uint64) content {
		b := bytes.Clone(base)
		copy(b[(seed%60)*page:], random(seed, 3*page))
		return content{"pages.img": b, "state": random(seed, 3000)}
	}
	type taken struct {
		id   carrel.SnapshotID
		seed uint64
	}
	var mu sync.Mutex
	var live []taken
	pick := func(r *rand.Rand, remove bool) (taken, bool) {
		mu.Lock()
		defer mu.Unlock()
		if len(live) == 0 {
			return taken{}, false
		}
		i := r.IntN(len(live))
		x := live[i]
		if remove {
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
		}
		return x, true
	}
	act := func(r *rand.Rand) {
		switch n := r.IntN(20); {
		case n < 6:
			x := taken{carrel.NewSnapshotID(), r.Uint64()}
			if err := take(s, x.id, of(x.seed)); err != nil {
				t.Errorf("take: %v", err)
				return
			}
			mu.Lock()
			live = append(live, x)
			mu.Unlock()
		case n < 13:
			x, found := pick(r, false)
			if !found {
				return
			}
			got, err := read(s, x.id)
			if carrel.KindOf(err) == carrel.NotFound {
				return // it has been deleted
			}
			want := of(x.seed)
			if err != nil || !bytes.Equal(got["pages.img"], want["pages.img"]) || !bytes.Equal(got["state"], want["state"]) {
				t.Errorf("%s: err %v, or other content", x.id, err)
			}
		case n < 17:
			if x, found := pick(r, true); found {
				if err := s.Delete(ctx, x.id); err != nil {
					t.Errorf("delete: %v", err)
				}
				if _, err := s.Get(ctx, x.id); carrel.KindOf(err) != carrel.NotFound {
					t.Errorf("%s is there after its deletion: %v", x.id, err)
				}
			}
		case n == 17:
			if _, err := s.GC(ctx); err != nil {
				t.Errorf("gc: %v", err)
			}
		case n == 18:
			if err := s.Flush(ctx); err != nil {
				t.Errorf("flush: %v", err)
			}
		default:
			if _, err := s.Usage(ctx); err != nil {
				t.Error(err)
			}
			s.Evict()
		}
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for range 60 {
				act(r)
			}
		})
	}
	wg.Wait()
	ok(t, s.Flush(ctx))
	s.Evict()
	for _, x := range live {
		mustRead(t, s, x.id, of(x.seed))
	}
	ids, err := s.List(ctx)
	ok(t, err)
	if len(ids) != len(live) {
		t.Errorf("%d are listed, %d live", len(ids), len(live))
	}
	for _, x := range live {
		ok(t, s.Delete(ctx, x.id))
	}
	_, err = s.GC(ctx)
	ok(t, err)
	if left := m.names(""); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	u, err := s.Usage(ctx)
	ok(t, err)
	if u.Hot != 0 || u.Packs != 0 || u.Snapshots != 0 {
		t.Errorf("usage %+v", u)
	}
}

// TestOpenStorm opens one packed snapshot a hundred times at once. It must be unpacked only once.
func TestOpenStorm(t *testing.T) {
	s, m, _ := fresh(t)
	c := content{"pages.img": random(1, 8<<20)}
	id := mustTake(t, s, c)
	ok(t, s.Flush(t.Context()))
	var gets int
	m.fail = func(op, name string) error {
		if op == "get" {
			m.mu.Lock()
			gets++
			m.mu.Unlock()
		}
		return nil
	}
	var wg sync.WaitGroup
	start := make(chan struct{})
	for range 100 {
		wg.Go(func() {
			<-start
			f, err := s.Open(context.Background(), id)
			if err != nil {
				t.Error(err)
				return
			}
			if err := f.Verify(context.Background()); err != nil {
				t.Error(err)
			}
			_ = f.Close()
			_ = f.Close()
		})
	}
	close(start)
	wg.Wait()
	if gets > 4 {
		t.Errorf("%d reads of blobs for one snapshot of two runs", gets)
	}
}

// TestDeleteWhileOpen deletes open snapshots. Their files must stay readable until they are closed.
func TestDeleteWhileOpen(t *testing.T) {
	for name, packed := range map[string]bool{"hot": false, "packed": true} {
		t.Run(name, func(t *testing.T) {
			s, m, opts := fresh(t)
			c := content{"a": random(1, 100_000)}
			id := mustTake(t, s, c)
			f, err := s.Open(t.Context(), id)
			ok(t, err)
			if packed {
				ok(t, s.Flush(t.Context()))
			}
			ok(t, s.Delete(t.Context(), id))
			ok(t, f.Verify(t.Context()))
			_, err = s.Open(t.Context(), id)
			wantKind(t, err, carrel.NotFound)
			if ids, err := s.List(t.Context()); err != nil || len(ids) != 0 {
				t.Fatalf("listed: %v %v", ids, err)
			}
			_, err = s.GC(t.Context())
			ok(t, err)
			ok(t, f.Verify(t.Context()))
			ok(t, f.Close())
			if left := filesIn(t, opts.Dir+"/hot"); len(left) != 0 {
				t.Fatalf("left: %v", left)
			}
			if left := m.names(""); len(left) != 0 {
				t.Fatalf("left: %v", left)
			}
		})
	}
}

// TestDeletedWhileUnpacked deletes a snapshot and runs a GC while an Open unpacks it. The Open must
// return that it does not exist, not that it is damaged.
func TestDeletedWhileUnpacked(t *testing.T) {
	m := newMemory()
	dir := memoryDir(t)
	s := open(t, store.Options{Dir: dir, Blobs: m, Reserve: -1, HotBytes: 1})
	ctx := t.Context()
	id := carrel.NewSnapshotID()
	ok(t, take(s, id, content{"pages.img": random(1, 64<<10), "state": random(2, 3000)}))
	ok(t, s.Flush(ctx))
	s.Evict()
	var once sync.Once
	met := false
	set := func(fail func(op, name string) error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.fail = fail
	}
	set(func(op, _ string) error {
		if fills, _ := filepath.Glob(filepath.Join(dir, "drafts", "fill-*", "*")); op == "get" && len(fills) > 0 {
			once.Do(func() {
				met = true
				// The content stays readable, so that the Open gets as far as writing its own
				// files.
				set(func(op, _ string) error {
					if op == "delete" {
						return errors.New("the blobs can't be deleted now")
					}
					return nil
				})
				_ = s.Delete(ctx, id)
				_, _ = s.GC(ctx)
			})
		}
		return nil
	})
	if _, err := read(s, id); carrel.KindOf(err) != carrel.NotFound || !met {
		t.Errorf("deleted while it was unpacked (%v): %v, want NotFound", met, err)
	}
}
