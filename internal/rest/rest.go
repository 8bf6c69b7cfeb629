// Package rest lets a process that mostly does nothing give back the memory that it does not need, and then leaves it alone.
//
// Thousands of sandboxes lie beside each other, each with a kernel and a guest of its own, and most of them do nothing most of the time. Go's
// runtime returns memory slowly and keeps what a busier moment needed; and it collects every two minutes, whether
// anything was allocated or not, which with 2,000 sandboxes is some thirty collections a second for nothing.
//
// A process at rest has given back what it could, and the collector waits for memory to be used, not for time to pass. The
// first collection ends the rest: then everything is as Go has it, until nothing happens again.
package rest

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// every is how often a process is looked at that is not at rest.
	every = 15 * time.Second
	// quiet is how many bytes it may allocate meanwhile and still come to rest.
	quiet = 256 << 10
	// young is how many it may have allocated and still be so.
	young = 4 << 20
)

// Options say how a process rests.
type Options struct {
	// First is when it does so for the first time.
	First time.Duration
	// Young means that there is nothing worth collecting then, if it has not been busy.
	Young bool
	// Percent is what the collector is set to when it does not rest; 0 is what it was set to before.
	Percent int
	// Room is how many bytes more it may use at rest before it is collected; 0 is 2 MB. Go's runtime keeps
	// 1 MB of it for itself.
	Room int64
}

// Run lets this process come to rest whenever it does nothing. It does not return.
func Run(o Options) { run(o, every, nil) }

// run is Run; each change is told, true for a rest.
func run(o Options, every time.Duration, tell func(bool)) {
	if o.Room == 0 {
		o.Room = 2 << 20
	}
	if tell == nil {
		tell = func(bool) {}
	}
	woken := make(chan struct{}, 1)
	time.Sleep(o.First)
	for {
		if !o.Young || allocated() > young {
			debug.FreeOSMemory() // collects, too
		}
		o.Young = false
		percent := debug.SetGCPercent(-1)
		if o.Percent != 0 {
			percent = o.Percent
		}
		limit := debug.SetMemoryLimit(used() + o.Room)
		// An object that nobody holds is found by the next collection.
		runtime.AddCleanup(new([16]byte), func(woken chan<- struct{}) { woken <- struct{}{} }, woken)
		tell(true)
		<-woken
		debug.SetMemoryLimit(limit)
		debug.SetGCPercent(percent)
		tell(false)
		for before := allocated(); ; {
			time.Sleep(every)
			now := allocated()
			if now-before < quiet {
				break
			}
			before = now
		}
	}
}

// used is what debug.SetMemoryLimit bounds.
func used() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64() - s[1].Value.Uint64())
}

// allocated is how many bytes this process has ever allocated.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
