package store_test

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot/store"
)

// BenchmarkCommit measures the part of a pause that the caller waits for: files just written become
// a snapshot.
func BenchmarkCommit(b *testing.B) {
	for _, mb := range []int{0, 50, 200} {
		b.Run(fmt.Sprintf("%dMB", mb), func(b *testing.B) {
			s := open(b, store.Options{Dir: b.TempDir(), Blobs: newMemory(), Manual: true, Reserve: -1})
			c := content{"pages.img": random(1, mb<<20+page), "state": random(2, 200_000)}
			for b.Loop() {
				b.StopTimer()
				id := carrel.NewSnapshotID()
				d, err := s.Begin(b.Context(), id)
				ok(b, err)
				ok(b, write(d.Dir(), c))
				b.StartTimer()
				_, err = d.Commit(b.Context(), manifestOf(id))
				b.StopTimer()
				ok(b, err)
				ok(b, s.Delete(b.Context(), id))
				b.StartTimer()
			}
			b.SetBytes(int64(mb << 20))
		})
	}
}

// BenchmarkVerify measures the work of a resume besides the restore.
func BenchmarkVerify(b *testing.B) {
	s, _, _ := fresh(b)
	id := mustTake(b, s, content{"pages.img": random(1, 50<<20)})
	f, err := s.Open(b.Context(), id)
	ok(b, err)
	defer f.Close()
	b.SetBytes(50 << 20)
	for b.Loop() {
		ok(b, f.Verify(b.Context()))
	}
}

// BenchmarkManySnapshots measures a store of 10,000 small snapshots, on a filesystem where fsync
// costs nothing.
func BenchmarkManySnapshots(b *testing.B) {
	dir, err := os.MkdirTemp("/dev/shm", "carrel-bench-")
	ok(b, err)
	defer os.RemoveAll(dir)
	opts := store.Options{Dir: dir, Blobs: newMemory(), Manual: true, Reserve: -1}
	s := open(b, opts)
	const n = 10_000
	for i := range n {
		mustTake(b, s, content{"state": random(uint64(i), 2000)})
	}
	start := time.Now()
	ok(b, s.Flush(b.Context()))
	b.Logf("packing: %v each", time.Since(start)/n)
	ok(b, s.Close())
	start = time.Now()
	s = open(b, opts)
	b.Logf("open: %v", time.Since(start))
	ok(b, os.Remove(dir+"/cache.json"))
	ok(b, s.Close())
	ok(b, os.Remove(dir+"/cache.json"))
	start = time.Now()
	s = open(b, opts)
	b.Logf("open without cache: %v", time.Since(start))
	start = time.Now()
	_, err = s.GC(b.Context())
	ok(b, err)
	b.Logf("gc: %v", time.Since(start))
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	for b.Loop() {
		id := mustTake(b, s, content{"state": random(1, 2000)})
		_, err := read(s, id)
		ok(b, err)
		ok(b, s.Delete(b.Context(), id))
	}
}
