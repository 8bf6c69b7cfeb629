package daemon

import (
	"runtime"
	"testing"
)

func TestHeapPercent(t *testing.T) {
	if few, many := heapPercent(20<<20), heapPercent(300<<20); few != 100 || many >= few {
		t.Errorf("with little held %d, with much %d", few, many)
	}
}

func TestHeapSpare(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		h    heap
		left uint64
		want bool
	}{
		"nothing to give back":                {heap{live: 50 * mib, objects: 52 * mib, free: 2 * mib}, 0, false},
		"garbage, and quiet":                  {heap{live: 50 * mib, objects: 70 * mib, free: 2 * mib}, 0, true},
		"free memory, and quiet":              {heap{live: 50 * mib, objects: 51 * mib, free: 20 * mib}, 0, true},
		"large stacks, and quiet":             {heap{live: 50 * mib, objects: 51 * mib, stacks: 30 * mib, routines: 4000}, 0, true},
		"small stacks":                        {heap{live: 50 * mib, objects: 51 * mib, stacks: 10 * mib, routines: 4000}, 0, false},
		"garbage, and busy":                   {heap{live: 50 * mib, objects: 90 * mib, allocated: 9 * mib}, 0, false},
		"much is held, and little is garbage": {heap{live: 400 * mib, objects: 450 * mib}, 0, false},
		"much is held, and a little happens":  {heap{live: 400 * mib, objects: 520 * mib, allocated: 9 * mib}, 0, true},
		"a collection has just found less":    {heap{live: 50 * mib, objects: 40 * mib}, 0, false},
		"the last time it was not given back": {heap{live: 50 * mib, objects: 51 * mib, free: 20 * mib}, 18 * mib, false},
	} {
		if got := c.h.spare(heap{}, c.left); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestHeapLook shows that the runtime knows the names of all the metrics that look reads.
func TestHeapLook(t *testing.T) {
	runtime.GC()
	var h heap
	h.look()
	if h.live == 0 || h.stacks == 0 || h.routines == 0 || h.objects == 0 || h.allocated < h.objects {
		t.Errorf("%+v", h)
	}
}
