package store_test

import (
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/snapshot"
	"github.com/carrel-dev/carrel/internal/snapshot/store"
)

// takeOf takes a snapshot that needs a build.
func takeOf(t *testing.T, s *store.Store, build string, b []byte) carrel.SnapshotID {
	t.Helper()
	id := carrel.NewSnapshotID()
	d, err := s.Begin(t.Context(), id)
	ok(t, err)
	ok(t, write(d.Dir(), content{"pages.img": b}))
	_, err = d.Commit(t.Context(), snapshot.Manifest{ID: id,
		Info: driver.SnapshotInfo{Driver: "fake", Memory: true, Build: build},
		Meta: json.RawMessage(`{}`)})
	ok(t, err)
	return id
}

// TestBuildsLieBesideSnapshots keeps a build in a shared store for as long as a snapshot of any
// machine needs it, packed or not.
func TestBuildsLieBesideSnapshots(t *testing.T) {
	a, b, _ := pair(t, time.Nanosecond)
	ctx := t.Context()
	put := func(name string) {
		t.Helper()
		ok(t, a.PutBuild(ctx, name, func() (io.ReadCloser, int64, error) {
			return io.NopCloser(strings.NewReader("program of " + name)), int64(len("program of " + name)),
				nil
		}))
	}
	has := func(name string) bool {
		t.Helper()
		r, err := b.GetBuild(ctx, name)
		if carrel.KindOf(err) == carrel.NotFound {
			return false
		}
		ok(t, err)
		defer r.Close()
		text, err := io.ReadAll(r)
		ok(t, err)
		if string(text) != "program of "+name {
			t.Errorf("build %s is %q", name, text)
		}
		return true
	}
	collect := func(s *store.Store) {
		t.Helper()
		_, err := s.GC(ctx)
		ok(t, err)
	}
	data := guestMemory(rand.New(rand.NewPCG(1, 2)), 1<<20)
	for _, name := range []string{"gvisor 1", "gvisor 2", "gvisor 3"} {
		put(name)
	}
	packed := takeOf(t, a, "gvisor 1", data)
	ok(t, a.Flush(ctx))
	takeOf(t, a, "gvisor 2", bytes.Clone(data)) // not packed
	collect(a)
	if !has("gvisor 1") || !has("gvisor 2") || has("gvisor 3") {
		t.Errorf("after a collection: %v %v %v", has("gvisor 1"), has("gvisor 2"), has("gvisor 3"))
	}
	ok(t, a.Flush(ctx))
	collect(b) // the other machine, which has no snapshot
	if !has("gvisor 1") || !has("gvisor 2") {
		t.Error("another machine removed a build in use")
	}
	ok(t, a.Delete(ctx, packed))
	collect(a)
	if has("gvisor 1") || !has("gvisor 2") {
		t.Errorf("after a deletion: %v %v", has("gvisor 1"), has("gvisor 2"))
	}
}
