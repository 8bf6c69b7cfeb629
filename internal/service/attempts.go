package service

import (
	"maps"
	"sync"
	"time"
)

// How the service repeats its own background work after a failure.
const (
	firstRetry = 15 * time.Second
	lastRetry  = 10 * time.Minute
)

// attempts limits a loop's work on single sandboxes. Each sandbox has one attempt at a time, and a
// few attempts run at once in all. The wait grows after each failure. attempts is safe for
// concurrent use.
type attempts struct {
	slots chan struct{}
	wg    sync.WaitGroup

	mu  sync.Mutex
	all map[*box]*attempt
}

type attempt struct {
	busy  bool
	next  time.Time     // not before
	retry time.Duration // wait after the next failure; 0 before the first
}

func newAttempts(atOnce int) *attempts {
	return &attempts{slots: make(chan struct{}, atOnce), all: map[*box]*attempt{}}
}

// try runs fn in a goroutine. It does nothing when the sandbox's next attempt is not due, when one
// is under way, or when too many attempts run. fn returns the time of the next attempt.
func (a *attempts) try(b *box, now time.Time, fn func() (next time.Time)) {
	if !a.ready(b, now) {
		return
	}
	select {
	case a.slots <- struct{}{}:
	default:
		return // with a later tick
	}
	at := a.mark(b)
	a.wg.Go(func() {
		defer func() { <-a.slots }()
		next := fn()
		a.mu.Lock()
		defer a.mu.Unlock()
		at.busy, at.next = false, next
	})
}

func (a *attempts) ready(b *box, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := a.all[b]
	return at == nil || !at.busy && !now.Before(at.next)
}

func (a *attempts) mark(b *box) *attempt {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := a.all[b]
	if at == nil {
		at = &attempt{}
		a.all[b] = at
	}
	at.busy = true
	return at
}

// failed returns how long to wait after another failure in a row.
func (a *attempts) failed(b *box) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := a.all[b]
	if at.retry == 0 {
		at.retry = firstRetry
	}
	d := at.retry
	at.retry = min(2*at.retry, lastRetry)
	return d
}

// worked forgets failures.
func (a *attempts) worked(b *box) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all[b].retry = 0
}

// tidy forgets sandboxes that have gone.
func (a *attempts) tidy() {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.all, func(b *box, at *attempt) bool { return !at.busy && isClosed(b.gone) })
}
