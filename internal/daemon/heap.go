package daemon

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// How the daemon's collector is set. By Go's default a heap may double before it is collected: right for a small one, whose collections
// should not meet every command. With thousands of sandboxes it is hundreds of megabytes for nothing.
const (
	heapEvery   = 20 * time.Second
	heapLarge   = 64 << 20 // what is held, from where on memory counts more than time
	percentFew  = 100
	percentMany = 40
)

// tendHeap keeps the collector right for how much is held, until the context ends.
func tendHeap(ctx context.Context) {
	held := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	tick := time.NewTicker(heapEvery)
	defer tick.Stop()
	for percent := percentFew; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		metrics.Read(held)
		if want := heapPercent(held[0].Value.Uint64()); want != percent {
			percent = want
			debug.SetGCPercent(percent)
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
