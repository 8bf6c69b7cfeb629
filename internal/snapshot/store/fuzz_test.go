package store_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot/store"
)

// FuzzPacked parses any bytes as a packed manifest. The result must be nil or Invalid, also with a
// right checksum.
func FuzzPacked(f *testing.F) {
	id, m := packedSeed(f)
	f.Add(m)
	f.Add(m[:len(m)/2])
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, reseal(append(bytes.Clone(b), make([]byte, 32)...))} {
			if err := store.ParsePacked(b, id); err != nil {
				wantKind(t, err, carrel.Invalid)
			}
		}
	})
}

// packedSeed makes a packed manifest.
func packedSeed(f *testing.F) (carrel.SnapshotID, []byte) {
	s, m, _ := fresh(f)
	id := carrel.SnapshotID("s00000000000000000000")
	ok(f, take(s, id, content{"pages.img": append(random(1, 80<<10), make([]byte, 8192)...), "state": random(2, 777)}))
	ok(f, s.Flush(f.Context()))
	var b []byte
	m.change("manifests/"+string(id), func(blob []byte) []byte { b = bytes.Clone(blob); return blob })
	return id, b
}

// FuzzManifest does the same for a hot copy's manifest.
func FuzzManifest(f *testing.F) {
	s, _, opts := fresh(f)
	id := mustTake(f, s, content{"pages.img": random(1, 8192)})
	b, err := os.ReadFile(hotFile(opts, id, "manifest.json"))
	ok(f, err)
	f.Add(b)
	f.Add([]byte(`{"version":1,"files":[{"size":1e99}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := store.ParseManifest(b, id); err != nil {
			wantKind(t, err, carrel.Invalid)
		}
	})
}

// FuzzIndex does the same for the index of a pack.
func FuzzIndex(f *testing.F) {
	s, _, opts := fresh(f)
	mustTake(f, s, content{"pages.img": random(1, 8192)})
	ok(f, s.Flush(f.Context()))
	for _, path := range glob(f, filepath.Join(opts.Dir, "index", "*")) {
		b, err := os.ReadFile(path)
		ok(f, err)
		f.Add(b[:len(b)-8])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, store.Seal(bytes.Clone(b))} {
			if err := store.ParseIndex(b); err != nil {
				wantKind(t, err, carrel.Invalid)
			}
		}
	})
}

func glob(t testing.TB, pattern string) []string {
	t.Helper()
	list, err := filepath.Glob(pattern)
	ok(t, err)
	return list
}

// FuzzChunk opens any bytes as a chunk. The result must never be longer than announced.
func FuzzChunk(f *testing.F) {
	enc, err := zstd.NewWriter(nil)
	ok(f, err)
	f.Add(enc.EncodeAll(make([]byte, 60<<10), nil), uint32(60<<10))
	f.Add(enc.EncodeAll(make([]byte, 100<<20), nil), uint32(70<<10)) // a bomb
	f.Fuzz(func(t *testing.T, b []byte, raw uint32) {
		n, err := store.OpenChunk(b, raw)
		if err != nil {
			wantKind(t, err, carrel.Invalid)
		} else if n > 0 && n != int(raw) {
			t.Fatalf("%d bytes instead of %d", n, raw)
		}
	})
}

// FuzzCut checks that the pieces add up to the whole, and end at valid places.
func FuzzCut(f *testing.F) {
	f.Add(random(1, 100_000), false)
	f.Add(make([]byte, 50_000), true)
	f.Fuzz(func(t *testing.T, b []byte, pages bool) {
		var sum int
		for _, n := range store.Cut(b, pages) {
			if n < 1 || n > 16<<10 || pages && n > page {
				t.Fatalf("a piece of %d bytes", n)
			}
			sum += n
		}
		if sum != len(b) {
			t.Fatalf("%d bytes of %d", sum, len(b))
		}
	})
}

// TestZipBomb opens a chunk that decompresses to far more than announced. That must take neither
// memory nor disk.
func TestZipBomb(t *testing.T) {
	enc, err := zstd.NewWriter(nil)
	ok(t, err)
	for _, size := range []int{1 << 20, 256 << 20} {
		n, err := store.OpenChunk(enc.EncodeAll(make([]byte, size), nil), 70<<10)
		wantKind(t, err, carrel.Invalid)
		if n != 0 {
			t.Fatalf("%d bytes came out", n)
		}
	}
}
