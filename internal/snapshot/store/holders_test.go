package store_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot/store"
)

// three opens three stores on one Blobs. No GC waits.
func three(t *testing.T) (a, b, c *store.Store, m *memory) {
	t.Helper()
	a, b, m = pair(t, time.Nanosecond)
	c = open(t, store.Options{Dir: memoryDir(t), Blobs: m, Shared: true, Manual: true, Reserve: -1, HotBytes: -1, Grace: time.Nanosecond})
	return a, b, c, m
}

// gcs collects on all machines, twice: what one leaves, another may find.
func gcs(t *testing.T, all ...*store.Store) {
	t.Helper()
	for range 2 {
		for _, s := range all {
			_, err := s.GC(t.Context())
			ok(t, err)
		}
	}
}

// leave makes a machine give up a snapshot, as a release does.
func leave(ctx context.Context, t *testing.T, s *store.Store, id carrel.SnapshotID) {
	t.Helper()
	ok(t, s.Disown(ctx, id))
	ok(t, s.Delete(ctx, id))
}

// TestHolders moves a snapshot from machine to machine and back. Nobody's deletion and nobody's GC
// takes it from a machine that holds it. The last deletion removes everything.
func TestHolders(t *testing.T) {
	a, b, c, m := three(t)
	ctx := t.Context()
	content := content{"pages.img": guestMemory(rand.New(rand.NewPCG(1, 2)), 1<<20)}
	id := mustTake(t, a, content)
	_, err := a.Pack(ctx, id)
	ok(t, err)
	_, err = b.Hold(ctx, id)
	ok(t, err)
	ok(t, a.Delete(ctx, id)) // the origin deletes it
	gcs(t, a, b, c)
	b.Evict()
	mustRead(t, b, id, content)
	_, err = c.Hold(ctx, id)
	ok(t, err)
	leave(ctx, t, b, id)
	gcs(t, a, b, c)
	c.Evict()
	mustRead(t, c, id, content)
	_, err = a.Hold(ctx, id) // back where it came from
	ok(t, err)
	ok(t, c.Delete(ctx, id))
	gcs(t, a, b, c)
	a.Evict()
	mustRead(t, a, id, content)
	ok(t, a.Delete(ctx, id))
	gcs(t, a, b, c)
	if left := m.names(""); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	wantKind(t, errOf(b.Hold(ctx, id)), carrel.NotFound)
}

func errOf[T any](_ T, err error) error { return err }

// TestReleasedWaits releases a snapshot before another machine takes it. It waits in the store, also
// for GCs and for another deletion by the machine that released it.
func TestReleasedWaits(t *testing.T) {
	a, b, c, m := three(t)
	ctx := t.Context()
	content := content{"a": random(1, 100_000)}
	id := mustTake(t, a, content)
	_, err := a.Pack(ctx, id)
	ok(t, err)
	leave(ctx, t, a, id)
	leave(ctx, t, a, id)
	ok(t, c.Delete(ctx, id)) // of a machine that never had it
	gcs(t, a, b, c)
	_, err = b.Hold(ctx, id)
	ok(t, err)
	mustRead(t, b, id, content)
	ok(t, b.Delete(ctx, id))
	gcs(t, b, a)
	if left := m.names(""); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestForeignCopyDeletesNothing opens another machine's snapshot without holding it, as a creation
// from it does, and deletes the copy.
func TestForeignCopyDeletesNothing(t *testing.T) {
	a, b, _, _ := three(t)
	ctx := t.Context()
	content := content{"a": random(1, 100_000)}
	id := mustTake(t, a, content)
	ok(t, a.Flush(ctx))
	mustRead(t, b, id, content)
	ok(t, b.Delete(ctx, id))
	gcs(t, b, a)
	a.Evict()
	mustRead(t, a, id, content)
	mustRead(t, b, id, content)
}

// TestImages stores an image, fetches it elsewhere, and collects it with its last user.
func TestImages(t *testing.T) {
	a, b, _, m := three(t)
	ctx := t.Context()
	image := guestMemory(rand.New(rand.NewPCG(3, 4)), 3<<20)
	raw := sha256.Sum256(image)
	sum := hex.EncodeToString(raw[:])
	path := filepath.Join(t.TempDir(), "root.erofs")
	ok(t, os.WriteFile(path, image, 0o600))
	id := mustTake(t, a, content{"a": random(1, 1000)})
	_, err := a.Pack(ctx, id)
	ok(t, err)
	ok(t, a.PutImage(ctx, sum, path, string(id)))
	before := len(m.names("packs/"))
	ok(t, a.PutImage(ctx, sum, path, string(id)))
	ok(t, b.PutImage(ctx, sum, path, string(id)))
	if now := len(m.names("packs/")); now != before {
		t.Errorf("it was stored again: %d packs, then %d", before, now)
	}
	gcs(t, a, b)
	to := filepath.Join(t.TempDir(), "there", "root.erofs")
	ok(t, b.GetImage(ctx, sum, to))
	if got, err := os.ReadFile(to); err != nil || string(got) != string(image) {
		t.Errorf("another content: %v", err)
	}
	other := sha256.Sum256([]byte("other"))
	wantKind(t, b.GetImage(ctx, hex.EncodeToString(other[:]), to), carrel.NotFound)
	wantKind(t, b.GetImage(ctx, "../../etc", to), carrel.Invalid)
	// Under another name it is refused.
	forged := "images/" + hex.EncodeToString(other[:])
	m.blobs[forged] = m.blobs["images/"+sum]
	wantKind(t, b.GetImage(ctx, hex.EncodeToString(other[:]), to), carrel.Invalid)
	ok(t, m.Delete(ctx, forged))

	ok(t, a.Delete(ctx, id))
	gcs(t, b, a, b)
	if left := m.names(""); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
