package store_test

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

const page = 4096

// guestMemory returns bytes like a guest's memory: a third zeros, a third text, a third random.
func guestMemory(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := 0; i < n; i += 64 << 10 {
		part := b[i:min(n, i+64<<10)]
		switch r.IntN(3) {
		case 0:
			fillRandom(r, part)
		case 1:
			for j := range part {
				part[j] = "etaoin shrdlu\n\x00\x01\x02"[r.IntN(16)]
			}
		}
	}
	return b
}

func fillRandom(r *rand.Rand, b []byte) {
	for i := 0; i+8 <= len(b); i += 8 {
		v := r.Uint64()
		for j := range 8 {
			b[i+j] = byte(v >> (8 * j))
		}
	}
}

// changes are ways in which a sandbox changes a number of pages of its memory.
var changes = map[string]func(r *rand.Rand, b []byte, pages int) []byte{
	"clustered": func(r *rand.Rand, b []byte, pages int) []byte {
		for pages > 0 {
			n := min(pages, 64)
			at := r.IntN(len(b)/page-n) * page
			fillRandom(r, b[at:at+n*page])
			pages -= n
		}
		return b
	},
	"scattered": func(r *rand.Rand, b []byte, pages int) []byte {
		for range pages {
			at := r.IntN(len(b)/page) * page
			fillRandom(r, b[at:at+page])
		}
		return b
	},
	// Pages are inserted and removed, and all pages behind them move.
	"moved": func(r *rand.Rand, b []byte, pages int) []byte {
		for range pages / 64 {
			fresh := make([]byte, 64*page)
			fillRandom(r, fresh)
			at, from := r.IntN(len(b)/page)*page, r.IntN(len(b)/page-64)*page
			b = append(b[:at:at], append(fresh, b[at:]...)...)
			b = append(b[:from:from], b[from+64*page:]...)
		}
		return b
	},
}

// TestTimelineCost checks the cost of a timeline. A sandbox changes a fortieth of its memory
// between twenty snapshots. Together they may cost at most twice the first.
func TestTimelineCost(t *testing.T) {
	// The full size (see BenchmarkTimeline) gives the same result.
	if testing.Short() {
		timeline(t, 10<<20, 256<<10)
		return
	}
	timeline(t, 40<<20, 1<<20)
}

// BenchmarkTimeline is TestTimelineCost with 200 MB. It reports the figures.
func BenchmarkTimeline(b *testing.B) { timeline(b, 200<<20, 5<<20) }

// timeline takes twenty snapshots of a sandbox that changes change bytes of its memory between
// them.
func timeline(t testing.TB, size, change int) {
	run := func(name string, fn func(t testing.TB)) {
		switch t := t.(type) {
		case *testing.T:
			t.Run(name, func(t *testing.T) { fn(t) })
		case *testing.B:
			t.Run(name, func(b *testing.B) { fn(b) })
		}
	}
	for name, edit := range changes {
		run(name, func(t testing.TB) {
			s, m, _ := fresh(t)
			r := rand.New(rand.NewPCG(1, 2))
			memory := guestMemory(r, size)
			private := random(3, 300_001)
			var ids []carrel.SnapshotID
			var first int64
			var packing time.Duration
			for i := range 20 {
				if i > 0 {
					memory = edit(r, memory, change/page)
					// A file that does not consist of pages: bytes are inserted at its front.
					private = append(random(uint64(100+i), 100), private...)
				}
				ids = append(ids, mustTake(t, s, content{"pages.img": memory, "kernel": private}))
				start := time.Now()
				ok(t, s.Flush(t.Context()))
				packing += time.Since(start)
				if i == 0 {
					first = m.bytes("")
					t.Logf("first: %d MB of %d MB, packed at %.0f MB/s", first>>20, size>>20, float64(size>>20)/packing.Seconds())
					packing = 0
				}
			}
			total := m.bytes("")
			t.Logf("20 snapshots: %d MB, %.2f × the first; packed at %.0f MB/s", total>>20, float64(total)/float64(first), float64(19*size>>20)/packing.Seconds())
			if total > 2*first {
				t.Errorf("20 snapshots cost %d bytes, the first %d", total, first)
			}
			start := time.Now()
			f, err := s.Open(t.Context(), ids[19])
			ok(t, err)
			t.Logf("unpacked at %.0f MB/s", float64(size>>20)/time.Since(start).Seconds())
			start = time.Now()
			ok(t, f.Verify(t.Context()))
			t.Logf("verified at %.0f MB/s", float64(size>>20)/time.Since(start).Seconds())
			ok(t, f.Close())
			mustRead(t, s, ids[19], content{"pages.img": memory, "kernel": private})
		})
	}
}

// TestDeleteOfParents deletes snapshots from a timeline, oldest first. The others must stay whole,
// and in the end nothing may be left.
func TestDeleteOfParents(t *testing.T) {
	s, m, opts := fresh(t)
	r := rand.New(rand.NewPCG(5, 6))
	size, pages := 12<<20, 600
	if testing.Short() {
		size, pages = 5<<20, 250
	}
	memory := guestMemory(r, size)
	var ids []carrel.SnapshotID
	var want [][]byte
	for range 12 {
		memory = changes["scattered"](r, bytes.Clone(memory), pages)
		ids, want = append(ids, mustTake(t, s, content{"pages.img": memory})), append(want, memory)
		ok(t, s.Flush(t.Context()))
	}
	before := m.bytes("packs/")
	for i, id := range ids {
		ok(t, s.Delete(t.Context(), id))
		got, err := s.GC(t.Context())
		ok(t, err)
		if i%3 == 0 {
			ok(t, s.Close())
			s = open(t, opts)
		}
		for j := i + 1; j < len(ids); j++ {
			mustRead(t, s, ids[j], content{"pages.img": want[j]})
		}
		s.Evict()
		u, err := s.Usage(t.Context())
		ok(t, err)
		t.Logf("without %d: %d KB of packs, was %d; %+v", i+1, u.Packs>>10, before>>10, got)
		if u.Packs != m.bytes("packs/") {
			t.Fatalf("usage says %d bytes of packs, there are %d", u.Packs, m.bytes("packs/"))
		}
	}
	if left := m.names(""); len(left) != 0 {
		t.Fatalf("left: %v", left)
	}
}
