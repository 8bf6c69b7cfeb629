package gvisor

import (
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

// Of many sandboxes that are restored at once, each reads all its pages although its first work needs a few, and those of one
// keep the processors from the start of the next: a third of what a fork costs. So a sentry that is told to holds back reads that nobody
// waits for. gVisor does not say which are waited for; it keeps count of those who wait, and that is looked at.

// How one holds back.
const (
	holdBlind  = 5 * time.Second        // at most, while the count is not found: nobody waits before there is a task
	holdClose  = 100 * time.Microsecond // between two looks when somebody waited just now: others will
	holdFar    = 10 * time.Millisecond  // and when nobody has for long
	holdShare  = 16                     // in between, the time since in so many parts
	holdWanted = 1000                   // looks that found somebody: a program that goes through its memory is not helped by a hold
)

// hold holds back reads of pages that nobody waits for. Its methods but note are for one goroutine.
type hold struct {
	span   time.Duration
	kernel atomic.Pointer[kernel.Kernel] // that is being restored

	began   time.Time // with the first read
	waiters *int64    // how many wait for pages; gVisor's
	last    time.Time // somebody waited
	wanted  int       // times that somebody did
	over    bool
}

// held is this process's; nil holds nothing back.
var held atomic.Pointer[hold]

// note remembers the kernel of a task, which knows the memory.
func (h *hold) note(ctx gcontext.Context) {
	if h != nil && h.kernel.Load() == nil {
		if k := kernel.KernelFromContext(ctx); k != nil {
			h.kernel.Store(k)
		}
	}
}

// wait returns when a page may be read.
func (h *hold) wait() {
	if h == nil || h.over {
		return
	}
	if h.began.IsZero() {
		h.began = time.Now()
		h.last = h.began
	}
	for {
		now := time.Now()
		if h.waiters == nil {
			h.waiters = countOfWaiters(h.kernel.Load())
		}
		passed := now.Sub(h.began)
		switch {
		case passed > h.span, h.waiters == nil && (passed > holdBlind || loadFields() == nil), h.wanted > holdWanted:
			h.over, h.waiters = true, nil
			return
		case h.waiters != nil && atomic.LoadInt64(h.waiters) > 0:
			h.last = now
			h.wanted++
			return
		}
		pause := min(max(now.Sub(h.last)/holdShare, holdClose), holdFar)
		ts := unix.NsecToTimespec(int64(pause))
		_ = unix.Nanosleep(&ts, nil) // a timer of Go's would change threads twice
	}
}

// countOfWaiters returns where gVisor counts who waits for pages of the main memory, or of a file that is read beside it; nil while
// nothing is read, and when it keeps no such count.
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

// loadOffsets are the offsets of the fields on the way to the count.
type loadOffsets struct{ load, pages, waiters uintptr }

// loadFields finds them; nil if gVisor's types are not those that we know.
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
