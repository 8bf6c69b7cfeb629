package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"testing"

	"github.com/carrel-dev/carrel"
)

// anchor keeps ranges, and checks that they follow each other.
type anchor struct {
	t      *testing.T
	mu     sync.Mutex
	ranges []anchored
	cut    int64
}

type anchored struct {
	first, last int64
	digest      string
}

func (a *anchor) Egress(first, last int64, digest string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := len(a.ranges); n > 0 && first != a.ranges[n-1].last+1 {
		a.t.Errorf("%d follows %d", first, a.ranges[n-1].last)
	}
	a.ranges = append(a.ranges, anchored{first, last, digest})
}

func (a *anchor) EgressCut(last int64) { a.mu.Lock(); defer a.mu.Unlock(); a.cut = last }

func (a *anchor) EgressLast() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.ranges) == 0 {
		return 0
	}
	return a.ranges[len(a.ranges)-1].last
}

// check compares all ranges that are still there with the lines.
func (a *anchor) check(t *testing.T, dir string, last int64) {
	t.Helper()
	sums := map[int64]string{} // by the range's end
	i, sum, seen := 0, sha256.New(), int64(0)
	for i < len(a.ranges) && a.ranges[i].first <= a.cut {
		i++
	}
	err := Lines(t.Context(), dir, 0, func(seq int64, line []byte) error {
		if i < len(a.ranges) && seq >= a.ranges[i].first {
			sum.Write(line)
		}
		if i < len(a.ranges) && seq == a.ranges[i].last {
			sums[seq] = hex.EncodeToString(sum.Sum(nil))
			sum.Reset()
			i++
		}
		seen = seq
		return nil
	})
	if err != nil || seen != last || a.EgressLast() != last {
		t.Errorf("%d lines, %d anchored, want %d: %v", seen, a.EgressLast(), last, err)
	}
	for _, r := range a.ranges {
		if r.first > a.cut && sums[r.last] != r.digest {
			t.Errorf("lines %d to %d have another digest", r.first, r.last)
		}
	}
}

// TestAnchor writes through rotations, packing, retention and a crash.
func TestAnchor(t *testing.T) {
	dir, a := t.TempDir(), &anchor{t: t}
	opts := Options{Anchor: a, MaxFile: 16 << 10, MaxFiles: 4, Rate: 1 << 20, bytes: 1 << 30}
	write := func(l *Log, n int) {
		for i := range n {
			l.Write(carrel.Decision{ID: "i1", Name: fmt.Sprint(i, ".example.com"), Rule: "default"})
			if i%50 == 49 {
				if err := l.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	l, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	write(l, 1000)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if a.cut == 0 {
		t.Error("retention removed nothing")
	}
	a.check(t, dir, 1000)
	// A daemon that died before it gave the last digests.
	opts.Anchor = nil
	if l, err = Open(dir, opts); err != nil {
		t.Fatal(err)
	}
	write(l, 20)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	opts.Anchor = a
	if l, err = Open(dir, opts); err != nil {
		t.Fatal(err)
	}
	write(l, 5)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	a.check(t, dir, 1025)
}
