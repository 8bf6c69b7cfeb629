// Package rest lets an idle process give back the memory that it does not need, and then leaves it
// alone.
//
// Thousands of sandboxes run beside each other, each with a kernel and a guest of its own, and most
// of them are idle most of the time. Go's runtime returns memory slowly and keeps the memory of a
// busier moment. It also collects garbage every two minutes, even if nothing was allocated. With
// 2,000 sandboxes that is some thirty useless collections a second.
//
// A process at rest has given back its unused memory. Its collector then waits for memory to be
// used, not for time to pass. The first collection ends the rest. From then on everything is as Go
// has it, until the process is idle again.
package rest

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// every is the time between two checks of a process that is not at rest.
	every = 15 * time.Second
	// quiet is the most bytes that a process may allocate between two checks and still count as
	// idle.
	quiet = 256 << 10
	// young is the most bytes that a process may have allocated in total and still count as young.
	young = 4 << 20
)

// Options configure how a process rests.
type Options struct {
	// First is the time until the first rest.
	First time.Duration
	// Young skips the collection at the first rest, because there is no garbage worth it. If the
	// process has been busy by then, the collection is not skipped.
	Young bool
	// Percent is the collector's GC percentage outside of a rest; 0 keeps the previous one.
	Percent int
	// Room is how many bytes more the process may use at rest before it is collected; 0 is 2 MB.
	// Go's runtime keeps 1 MB of it for itself.
	Room int64
}

// Run lets this process rest whenever it is idle. It does not return.
func Run(o Options) { run(o, every, nil) }

// run is Run. It calls tell at each change: true at the start of a rest.
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
		// The next collection finds this object, because nothing refers to it. That reports the
		// collection.
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

// used is the memory that debug.SetMemoryLimit bounds.
func used() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64() - s[1].Value.Uint64())
}

// allocated is the number of bytes that this process has allocated since its start.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
