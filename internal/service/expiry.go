package service

import (
	"container/heap"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/ceiling"
	"github.com/carrel-dev/carrel/internal/state"
)

// expiry knows the end time of each sandbox. It has one heap, one timer and one goroutine.
type expiry struct {
	wake chan struct{} // holds a token when the head of the heap may have changed

	mu   sync.Mutex
	heap dueHeap
}

// dueAt is a box's place in the heap, guarded by expiry.mu.
type dueAt struct {
	at    time.Time
	index int // in the heap
	in    bool
	over  bool // the sandbox has ended and must not come back
}

func newExpiry() expiry { return expiry{wake: make(chan struct{}, 1)} }

// set sets or changes a sandbox's end time.
func (e *expiry) set(b *box, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if b.due.over {
		return
	}
	b.due.at = at
	if b.due.in {
		heap.Fix(&e.heap, b.due.index)
	} else {
		heap.Push(&e.heap, b)
	}
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// remove removes an ended sandbox for good.
func (e *expiry) remove(b *box) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b.due.over = true
	if b.due.in {
		heap.Remove(&e.heap, b.due.index)
	}
}

// clear removes a sandbox that may come back later.
func (e *expiry) clear(b *box) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if b.due.in {
		heap.Remove(&e.heap, b.due.index)
	}
}

// take removes and returns the sandboxes whose time is up. next is the time until the next one is
// due; any is false when there is none.
func (e *expiry) take(now time.Time) (due []*box, next time.Duration, any bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.heap) > 0 {
		b := e.heap[0]
		if d := b.due.at.Sub(now); d > 0 {
			return due, d, true
		}
		heap.Pop(&e.heap)
		due = append(due, b)
	}
	return due, 0, false
}

// retryEnd is the wait after a failed end.
const (
	retryEnd   = 5 * time.Second
	retryBusy  = time.Second      // it is being paused or resumed
	retryPause = 15 * time.Second // it could not be paused
)

// expire ends each sandbox when its time is up, until the service closes.
func (li *lifecycle) expire() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		due, next, any := li.expiry.take(time.Now())
		for _, b := range due {
			li.table.spawn(func() { li.expired(b) })
		}
		if !any {
			next = time.Hour
		}
		timer.Reset(next)
		select {
		case <-timer.C:
		case <-li.expiry.wake:
		case <-li.table.ctx.Done():
			return
		}
	}
}

// expired ends one sandbox whose time is up, or tries again after a failed end.
func (li *lifecycle) expired(b *box) {
	ctx := context.WithoutCancel(li.table.ctx)
	b.mu.Lock()
	sb, failed := b.rec.Sandbox, b.failed
	b.mu.Unlock()
	var err error
	switch {
	case failed != nil:
		err = li.end(ctx, b, failed.reason, failed.message)
	case sb.State == carrel.Pausing || sb.State == carrel.Resuming:
		li.expiry.set(b, time.Now().Add(retryBusy))
	case sb.State == carrel.Paused:
	case sb.Lifecycle.OnTimeout == carrel.ActionPause:
		err = li.pauseLate(ctx, b)
	default:
		d := sb.Ends.Sub(sb.Started).Round(time.Second)
		err = li.endIf(ctx, b, verdict{carrel.EndTimeout, fmt.Sprintf(
			"its timeout passed, %v after its start: create it with a longer timeout, or extend the timeout while it runs", d)},
			func(sb carrel.Sandbox) bool {
				late := !time.Now().Before(sb.Ends)
				if !late { // extended meanwhile
					li.expiry.set(b, sb.Ends)
				}
				return late
			})
	}
	if err != nil {
		li.log.Error("end sandbox", "sandbox", b.id, "err", err)
	}
}

// pauseLate pauses a sandbox whose time is up. If the pause fails, the sandbox runs on and the
// service tries again, because its state is worth more than the timeout.
func (li *lifecycle) pauseLate(ctx context.Context, b *box) error {
	var ends time.Time
	late := func() bool {
		ends = b.rec.Sandbox.Ends
		return !time.Now().Before(ends)
	}
	sb, err := li.moments.pauseIf(ctx, b, carrel.PauseOptions{FilesOnly: b.public().Lifecycle.FilesOnly, Cause: carrel.CauseTimeout}, late)
	switch {
	case err == nil && sb.State == carrel.Running: // extended meanwhile
		li.expiry.set(b, ends)
	case err != nil && carrel.KindOf(err) != carrel.NotFound && b.public().State == carrel.Running:
		li.expiry.set(b, time.Now().Add(retryPause))
		li.journal.tell(carrel.Event{Type: eventPauseFailed, ID: b.id,
			Message: fmt.Sprintf("its timeout passed, but it could not be paused and runs on: %v; tried again in %v", err, retryPause)})
	case carrel.KindOf(err) == carrel.Conflict, carrel.KindOf(err) == carrel.NotFound:
		return nil
	}
	return err
}

// dueHeap implements heap.Interface. The box with the earliest end time is first.
type dueHeap []*box

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due.at.Before(h[j].due.at) }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].due.index, h[j].due.index = i, j
}

// Push implements heap.Interface.
func (h *dueHeap) Push(x any) {
	b := x.(*box)
	b.due.index, b.due.in = len(*h), true
	*h = append(*h, b)
}

// Pop implements heap.Interface.
func (h *dueHeap) Pop() any {
	old := *h
	b := old[len(old)-1]
	old[len(old)-1] = nil
	b.due.in = false
	*h = old[:len(old)-1]
	return b
}

// SetTimeout implements carrel.Sandboxes. A duration of 0 ends the sandbox now.
func (li *lifecycle) SetTimeout(ctx context.Context, id carrel.ID, d time.Duration, extendOnly bool) (carrel.Sandbox, error) {
	const op = "set timeout"
	if err := li.rules.checkTimeout(op, d); err != nil {
		return carrel.Sandbox{}, err
	}
	b, err := li.table.find(op, id)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	rec := b.record()
	if err := ceiling.Timeout(op, li.rules.bounds(ctx, rec.Sandbox.Project, rec.KeyID), d); err != nil {
		return carrel.Sandbox{}, err
	}
	changed := false
	sb, err := li.records.update(ctx, op, b, func(r *state.Record) {
		ends := time.Now().Add(d).UTC().Round(0)
		if extendOnly && !ends.After(r.Sandbox.Ends) {
			return // extendOnly: a shorter timeout changes nothing
		}
		r.Sandbox.Ends, changed = ends, true
		if d > 0 {
			r.Timeout = d
		}
	})
	if err != nil {
		return carrel.Sandbox{}, err
	}
	li.expiry.set(b, sb.Ends)
	if changed {
		li.journal.tell(updatedEvent(sb, "ends at "+sb.Ends.UTC().Format(time.RFC3339), "timeout"))
	}
	return sb, nil
}
