package daemon

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// How the daemon's collector is set. By Go's default a heap may double before it is collected: right for a small one, whose collections
// should not meet every command. With thousands of sandboxes it is hundreds of megabytes for nothing. And what a burst needed, Go
// keeps for minutes, until the next collection and long after it; a daemon that has become quiet gives it back at once.
const (
	heapEvery   = 2 * time.Second
	heapLarge   = 64 << 20 // what is held, from where on memory counts more than time
	percentFew  = 100
	percentMany = 40
	heapWorth   = 8 << 20 // what can be given back, from where on that is worth a collection
)

// heap is what the runtime says of its memory, in bytes.
type heap struct {
	live      uint64 // reached by the last collection
	objects   uint64 // of those and all since
	free      uint64 // neither used nor given back
	stacks    uint64 // of all goroutines
	allocated uint64 // ever
	routines  uint64 // a number, not bytes
}

// smallStack is what a goroutine has that waits: collections halve the stack of one that once needed more, down to that.
const smallStack = 3 << 10

// look reads it.
func (h *heap) look() {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}, {Name: "/gc/heap/allocs:bytes"},
		{Name: "/memory/classes/heap/stacks:bytes"}, {Name: "/sched/goroutines:goroutines"}}
	metrics.Read(s)
	h.live, h.objects, h.free, h.allocated = s[0].Value.Uint64(), s[1].Value.Uint64(), s[2].Value.Uint64(), s[3].Value.Uint64()
	h.stacks, h.routines = s[4].Value.Uint64(), s[5].Value.Uint64()
}

// tendHeap keeps the collector right for how much is held, until the context ends.
func tendHeap(ctx context.Context) {
	tick := time.NewTicker(heapEvery)
	defer tick.Stop()
	var before, now heap
	var left uint64 // unused, when that was last given back
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
			runtime.GC() // stacks shrink by half in each, and what pools hold is garbage in the second only
			debug.FreeOSMemory()
			now.look()
			left = now.unused()
		}
	}
}

// heapPercent is how the collector should be set with so many bytes held.
func heapPercent(held uint64) int {
	if held < heapLarge {
		return percentFew
	}
	return percentMany
}

// unused is what a collection might give back.
func (h heap) unused() uint64 {
	small := h.routines * smallStack
	return h.free + max(h.objects, h.live) - h.live + max(h.stacks, small) - small
}

// spare reports whether there is enough to give back, besides what could not be given back the last time, and little happens. Enough is a
// quarter of what is held at least, so that a daemon that is never quite idle does not collect for ever.
func (h heap) spare(before heap, left uint64) bool {
	quiet := h.allocated-before.allocated < max(1<<20, h.live/32)
	return quiet && h.unused() >= left+max(heapWorth, h.live/4)
}
