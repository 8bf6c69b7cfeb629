package daemon

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Settings of the daemon's garbage collector. By Go's default, a heap may double before it is
// collected. That is right for a small heap, whose collections should not delay every command. With
// thousands of sandboxes, it wastes hundreds of megabytes. After a burst, Go keeps its memory for
// minutes, until the next collection and long after it. A daemon that has become quiet gives this
// memory back at once.
const (
	heapEvery   = 2 * time.Second
	heapLarge   = 64 << 20 // from this size on, memory counts more than time
	percentFew  = 100
	percentMany = 40
	heapWorth   = 8 << 20 // the least gain that is worth a collection
)

// heap is the runtime's memory statistics, in bytes.
type heap struct {
	live      uint64 // found reachable by the last collection
	objects   uint64 // of those and all since
	free      uint64 // neither used nor given back
	stacks    uint64 // of all goroutines
	allocated uint64 // ever
	routines  uint64 // a number, not bytes
}

// smallStack is the stack size of a waiting goroutine. Collections halve a larger stack until it
// has this size.
const smallStack = 3 << 10

// look reads it.
func (h *heap) look() {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}, {Name: "/gc/heap/allocs:bytes"},
		{Name: "/memory/classes/heap/stacks:bytes"}, {Name: "/sched/goroutines:goroutines"}}
	metrics.Read(s)
	h.live, h.objects, h.free, h.allocated = s[0].Value.Uint64(), s[1].Value.Uint64(), s[2].Value.Uint64(), s[3].Value.Uint64()
	h.stacks, h.routines = s[4].Value.Uint64(), s[5].Value.Uint64()
}

// tendHeap adjusts the collector to the heap's size, until the context ends.
func tendHeap(ctx context.Context) {
	tick := time.NewTicker(heapEvery)
	defer tick.Stop()
	var before, now heap
	var left uint64 // unused memory after the last time it was given back
	before.look()
	for percent := percentFew; ; before = now {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now.look()
		if want := heapPercent(now.live); want != percent {
			percent = want
			debug.SetGCPercent(percent)
		}
		if now.spare(before, left) {
			runtime.GC() // each halves the stacks; only the second frees pools
			debug.FreeOSMemory()
			now.look()
			left = now.unused()
		}
	}
}

// heapPercent is the collector's setting for a heap of this many bytes.
func heapPercent(held uint64) int {
	if held < heapLarge {
		return percentFew
	}
	return percentMany
}

// unused is the memory that a collection might give back.
func (h heap) unused() uint64 {
	small := h.routines * smallStack
	return h.free + max(h.objects, h.live) - h.live + max(h.stacks, small) - small
}

// spare reports whether the daemon is quiet and there is enough memory to give back, besides the
// rest that could not be given back last time. Enough is at least a quarter of the live heap, so
// that a daemon that is never quite idle does not collect for ever.
func (h heap) spare(before heap, left uint64) bool {
	quiet := h.allocated-before.allocated < max(1<<20, h.live/32)
	return quiet && h.unused() >= left+max(heapWorth, h.live/4)
}
