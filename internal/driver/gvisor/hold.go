package gvisor

import (
	"math"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	gcontext "gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
)

// When many sandboxes are restored at once, each one reads all its pages. It needs only a few to
// start. The bulk reads of one sandbox delay the start of the next: a third of the cost of a fork.
// So a sentry can be told to hold back reads that no task waits for. gVisor does not say which
// pages a task waits for, but it counts the waiting tasks. The hold looks at that count.

// A hold for a time lets the sentry read everything afterwards. A hold for good never does: what no
// task waits for stays in the snapshot's file, of which the host keeps one copy in memory for all
// sandboxes. A task then waits for less at once, see MapUnit. A hold for good lasts as long as the
// sandbox, so it may not look at the count while nothing runs: the end of each stay of a task in its
// program is noted (stir), and a hold that has noted none for a while sleeps until the next.

// Times and limits of a hold.
const (
	holdBlind  = 5 * time.Second        // longest hold without finding the count
	holdClose  = 100 * time.Microsecond // between two looks just after a task waited: others will
	holdFar    = 10 * time.Millisecond  // between two looks long after a task waited
	holdShare  = 16                     // in between: this part of the time since a task waited
	holdWanted = 1000                   // looks that found a waiting task; then the hold ends
)

// More of a hold for good.
const (
	holdForGood  = time.Duration(math.MaxInt64)
	holdUnit     = 64 << 10               // the most that a task waits for at once, if possible
	holdQuiet    = 250 * time.Millisecond // without a stir; then the hold sleeps
	holdLongest  = time.Second            // longest sleep: a task of gVisor's own may wait, too
	holdCapacity = 1                      // of the wake channel: one call for all
)

// hold holds back reads of pages that no task waits for. Only note, stir and unit are safe for
// several goroutines.
type hold struct {
	span    time.Duration
	stirs   atomic.Bool   // a task ran since the last look
	sleeps  atomic.Bool   // the hold waits for wake
	wake    chan struct{} // a call for a hold that sleeps
	end     atomic.Bool   // everything is read
	stirred time.Time     // time of the last look that found a stir

	kernel atomic.Pointer[kernel.Kernel] // the kernel being restored

	began   time.Time // time of the first read
	waiters *int64    // gVisor's count of tasks that wait for pages
	last    time.Time // last time that a task waited
	wanted  int       // looks that found a waiting task
	over    bool
}

// held is the hold of this process; nil holds nothing back.
var held atomic.Pointer[hold]

// note remembers the kernel of a task. Through the kernel the hold finds the memory.
func (h *hold) note(ctx gcontext.Context) {
	if h != nil && h.kernel.Load() == nil {
		if k := kernel.KernelFromContext(ctx); k != nil {
			h.kernel.Store(k)
		}
	}
}

// newHold makes a hold.
func newHold(span time.Duration) *hold {
	return &hold{span: span, wake: make(chan struct{}, holdCapacity)}
}

// isForGood reports whether pages are read only when a task waits for them.
func (h *hold) isForGood() bool { return h != nil && h.span == holdForGood }

// unit is the most that a task shall wait for at once; 0 is no bound.
func (h *hold) unit() uint64 {
	if h.isForGood() && !h.end.Load() {
		return holdUnit
	}
	return 0
}

// stir notes that a task leaves its program, perhaps to wait for a page.
func (h *hold) stir() {
	if h == nil || h.stirs.Load() {
		return
	}
	h.stirs.Store(true)
	if h.sleeps.Load() {
		select {
		case h.wake <- struct{}{}:
		default:
		}
	}
}

// sleep waits for a stir, unless there was one.
func (h *hold) sleep() {
	h.sleeps.Store(true)
	defer h.sleeps.Store(false)
	if h.stirs.Load() {
		return
	}
	longest := time.NewTimer(holdLongest)
	defer longest.Stop()
	select {
	case <-h.wake:
	case <-longest.C:
	}
}

// wait returns when the next page may be read.
func (h *hold) wait() {
	if h == nil || h.over {
		return
	}
	if h.began.IsZero() {
		h.began = time.Now()
		h.last, h.stirred = h.began, h.began
	}
	for {
		now := time.Now()
		if h.waiters == nil {
			h.waiters = countOfWaiters(h.kernel.Load())
		}
		passed := now.Sub(h.began)
		switch {
		case passed > h.span, h.waiters == nil && (passed > holdBlind || loadFields() == nil),
			h.wanted > holdWanted && !h.isForGood():
			h.over, h.waiters = true, nil
			return
		case h.waiters != nil && atomic.LoadInt64(h.waiters) > 0:
			h.last = now
			h.wanted++
			return
		}
		if h.stirs.Swap(false) {
			h.stirred = now
		} else if now.Sub(h.stirred) > holdQuiet && h.waiters != nil {
			h.sleep()
			if h.stirs.Load() {
				h.last = time.Now() // the task may wait at any moment now
			}
			continue
		}
		pause := min(max(now.Sub(h.last)/holdShare, holdClose), holdFar)
		ts := unix.NsecToTimespec(int64(pause))
		_ = unix.Nanosleep(&ts, nil) // a Go timer would switch threads twice
	}
}

// countOfWaiters returns the address of a counter of gVisor's: how many tasks wait for pages. The
// pages may belong to the main memory or to another file that is loaded beside it. It returns nil
// while nothing is loaded, and when gVisor keeps no such counter.
func countOfWaiters(k *kernel.Kernel) *int64 {
	f := loadFields()
	if k == nil || f == nil {
		return nil
	}
	mf := k.MemoryFile()
	if mf == nil {
		return nil
	}
	load := atomic.LoadPointer((*unsafe.Pointer)(unsafe.Add(unsafe.Pointer(mf), f.load)))
	if load == nil {
		return nil
	}
	pages := *(*unsafe.Pointer)(unsafe.Add(load, f.pages))
	return (*int64)(unsafe.Add(pages, f.waiters))
}

// loadOffsets are the offsets of the fields that lead to the count.
type loadOffsets struct{ load, pages, waiters uintptr }

// loadFields finds the offsets; nil if gVisor's types are not the ones that we know.
var loadFields = sync.OnceValue(func() *loadOffsets {
	load, ok := reflect.TypeFor[pgalloc.MemoryFile]().FieldByName("asyncPageLoad")
	if !ok || load.Type.Kind() != reflect.Struct || load.Type.PkgPath() != "sync/atomic" || load.Type.Size() != unsafe.Sizeof(uintptr(0)) {
		return nil
	}
	target := load.Type.Field(0).Type // an atomic.Pointer[T] begins with [0]*T
	if target.Kind() != reflect.Array || target.Elem().Kind() != reflect.Pointer || target.Elem().Elem().Kind() != reflect.Struct {
		return nil
	}
	pages, ok := target.Elem().Elem().FieldByName("pf")
	if !ok || pages.Type != reflect.TypeFor[*pgalloc.AsyncPagesFileLoad]() {
		return nil
	}
	waiters, ok := pages.Type.Elem().FieldByName("numWaiters")
	if !ok || waiters.Type.Kind() != reflect.Int || waiters.Type.Size() != unsafe.Sizeof(int64(0)) {
		return nil
	}
	return &loadOffsets{load.Offset, pages.Offset, waiters.Offset}
})
