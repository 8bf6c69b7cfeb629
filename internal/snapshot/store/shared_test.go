package store_test

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot/store"
)

// pair opens two stores on one Blobs, as two machines would.
func pair(t *testing.T, grace time.Duration) (a, b *store.Store, m *memory) {
	t.Helper()
	m = newMemory()
	one := func() *store.Store {
		return open(t, store.Options{Dir: memoryDir(t), Blobs: m, Shared: true, Manual: true, Reserve: -1, HotBytes: -1, Grace: grace})
	}
	return one(), one(), m
}

// TestSharedBlobs runs GCs on two machines at any time. Neither may harm the other.
func TestSharedBlobs(t *testing.T) {
	a, b, m := pair(t, time.Nanosecond)
	ctx := t.Context()
	r := rand.New(rand.NewPCG(1, 1))
	base := guestMemory(r, 2<<20)
	stores := []*store.Store{a, b}
	type taken struct {
		id carrel.SnapshotID
		c  content
	}
	live := map[int][]taken{}
	rounds := 24
	if testing.Short() {
		rounds = 12 // each round reads what all before it took
	}
	for i := range rounds {
		n := i % 2
		base = changes["scattered"](r, bytes.Clone(base), 150)
		c := content{"pages.img": base}
		live[n] = append(live[n], taken{mustTake(t, stores[n], c), c})
		ok(t, stores[n].Flush(ctx))
		if i%3 == 2 {
			x := live[n][0]
			live[n] = live[n][1:]
			ok(t, stores[n].Delete(ctx, x.id))
		}
		for _, s := range stores {
			_, err := s.GC(ctx)
			ok(t, err)
		}
		for n, list := range live {
			for _, x := range list {
				mustRead(t, stores[1-n], x.id, x.c) // as the other machine sees it
			}
		}
		a.Evict()
		b.Evict()
	}
	for n, list := range live {
		for _, x := range list {
			mustRead(t, stores[n], x.id, x.c)
			ok(t, stores[n].Delete(ctx, x.id))
		}
	}
	for _, s := range stores {
		_, err := s.GC(ctx)
		ok(t, err)
	}
	if left := append(m.names("packs/"), m.names("manifests/")...); len(left) > 0 {
		t.Fatalf("left: %v", left)
	}
}

// TestGracePeriod checks that a GC does not touch packs that another machine has just written.
func TestGracePeriod(t *testing.T) {
	a, b, m := pair(t, time.Hour)
	id := mustTake(t, a, content{"a": random(1, 100_000)})
	block := make(chan error)
	m.fail = func(op, name string) error {
		if op == "put" && name == "manifests/"+string(id) {
			block <- nil
			return <-block
		}
		return nil
	}
	flushed := make(chan error)
	go func() { flushed <- a.Flush(t.Context()) }()
	<-block // the pack is there, its manifest is not yet
	got, err := b.GC(t.Context())
	ok(t, err)
	if got.Packs != 0 || len(m.names("packs/")) != 1 {
		t.Fatalf("collected %+v", got)
	}
	block <- nil
	ok(t, <-flushed)
	a.Evict()
	mustRead(t, b, id, content{"a": random(1, 100_000)})
}

// TestPackMarkedWhilePacking packs a snapshot that reuses an old, unused pack of the same machine.
// At the same moment another machine collects that pack.
func TestPackMarkedWhilePacking(t *testing.T) {
	a, b, m := pair(t, time.Nanosecond)
	ctx := t.Context()
	c := content{"a": random(1, 100_000)}
	old := mustTake(t, a, c)
	ok(t, a.Flush(ctx))
	ok(t, a.Delete(ctx, old))
	id := mustTake(t, a, c)
	first := true
	m.fail = func(op, name string) error {
		if op == "put" && name == "manifests/"+string(id) && first {
			first = false
			_, err := b.GC(ctx) // deletes the pack that the manifest is about to name
			return err
		}
		return nil
	}
	ok(t, a.Flush(ctx))
	a.Evict()
	mustRead(t, a, id, c)
	mustRead(t, b, id, c)
	_, err := a.GC(ctx)
	ok(t, err)
	if dead := m.names("dead/"); len(dead) > 0 {
		t.Fatalf("marks left: %v", dead)
	}
	mustRead(t, b, id, c)
}

// TestDeletedElsewhere deletes a snapshot in the object store from another machine. It must then be
// deleted for all.
func TestDeletedElsewhere(t *testing.T) {
	a, b, _ := pair(t, time.Nanosecond)
	ctx := t.Context()
	c := content{"a": random(1, 100_000)}
	id := mustTake(t, a, c)
	ok(t, a.Flush(ctx))
	ids, err := b.ListRemote(ctx)
	ok(t, err)
	if len(ids) != 1 || ids[0] != id {
		t.Fatalf("remote: %v", ids)
	}
	ok(t, b.Delete(ctx, id)) // without ever having opened it
	_, err = b.Get(ctx, id)
	wantKind(t, err, carrel.NotFound)
	_, err = b.GC(ctx)
	ok(t, err)
	a.Evict()
	_, err = a.Open(ctx, id)
	wantKind(t, err, carrel.NotFound)
}
