package admission

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/carrel-dev/carrel"
)

// longestRetry bounds the wait that a refused client is told.
const longestRetry = time.Minute

// waitLocked estimates how long a request with so many before it would wait; 0 without
// measurements.
func (g *Gate) waitLocked(ahead int) time.Duration {
	at := min(g.limit.now(), g.opts.MaxStarting)
	return time.Duration(float64(ahead) * g.limit.mean / float64(at) * float64(time.Second))
}

// tooLateLocked refuses a request that would wait too long.
func (g *Gate) tooLateLocked(ctx context.Context, r Request, t *sharer, now time.Time) error {
	ahead := g.aheadLocked(t, r.Lane)
	wait := g.waitLocked(ahead)
	if at, ok := ctx.Deadline(); ok && at.Sub(now) < wait+g.limit.usual(r.Class) {
		return g.refusal(r, wait, fmt.Errorf("it would wait %s for its turn, behind %s, and must be done in %s",
			about(wait), g.crowd(ahead), about(at.Sub(now))),
			"%s, or allow it more time")
	}
	bound := t.bound(g.opts.MaxWait)
	switch {
	case wait <= bound:
		return nil
	case bound < g.opts.MaxWait:
		return g.refusal(r, wait, fmt.Errorf("it would wait %s for its turn, behind %s, and clients have lately hung up sooner",
			about(wait), g.crowd(ahead)), "%s, or have clients wait longer")
	}
	return g.refusal(r, wait-bound, fmt.Errorf("it would wait %s for its turn, behind %s; the longest that one may wait is %s",
		about(wait), g.crowd(ahead), about(bound)), "%s, or ask for fewer at once")
}

// fullLocked is the error for a request that finds the queue full.
func (g *Gate) fullLocked(r Request, t *sharer) error {
	return g.refusal(r, g.waitLocked(g.waiting()), fmt.Errorf("%d requests wait for their turn, %d of them this caller's, and no more than %d may",
		g.waiting(), t.waiting(), g.opts.MaxQueued), "%s, ask for fewer at once, or raise the limit ("+g.opts.Flag+")")
}

// bumpedError is the error for a request that must leave a full queue.
func (g *Gate) bumpedError(r Request) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refusal(r, g.waitLocked(g.waiting()), fmt.Errorf("the queue of %d is full, most of it with this caller's requests, and another caller's came",
		g.opts.MaxQueued), "%s, ask for fewer at once, or raise the limit ("+g.opts.Flag+")")
}

// waitedLocked is the error for a request whose turn did not come in time.
func (g *Gate) waitedLocked(r Request, waited time.Duration) error {
	return g.refusal(r, g.waitLocked(g.waiting()), fmt.Errorf("its turn did not come within %s; %d run their start and %d wait",
		about(waited), g.inside, g.waiting()), "%s, or ask for fewer at once; GET /carrel/v1/admission says what goes on")
}

// refusal is the error for too many requests. hint contains a verb for the time of the next try.
func (g *Gate) refusal(r Request, wait time.Duration, err error, hint string) error {
	after := min(max(time.Duration(math.Ceil(wait.Seconds()))*time.Second, time.Second), longestRetry)
	return &carrel.Error{Op: r.Op, Kind: carrel.Exhausted, Err: err, RetryAfter: after,
		Hint: fmt.Sprintf(hint, fmt.Sprintf("try again in %v", after))}
}

// goneError is the error for a client that hung up. Perhaps nobody reads it.
func (g *Gate) goneError(r Request, cause error) error {
	kind := carrel.Unavailable
	if errors.Is(cause, context.DeadlineExceeded) {
		kind = carrel.TimedOut
	}
	return &carrel.Error{Op: r.Op, Kind: kind, Err: fmt.Errorf("it gave up while it waited for its turn: %w", cause)}
}

// crowd describes how many are before a request, and how fast they move.
func (g *Gate) crowd(ahead int) string {
	text := fmt.Sprintf("%d others", ahead)
	if ahead == 1 {
		text = "one other"
	}
	if mean := g.limit.mean; mean > 0 {
		text += fmt.Sprintf(" of which this machine starts %.3g a second", float64(g.limit.now())/mean)
	}
	return text
}

// about rounds a duration for people.
func about(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}

// State is the present state of a gate.
type State struct {
	// Limit is how many may be inside, as the gate has found. MaxStarting is its upper bound.
	Limit       int `json:"limit"`
	MaxStarting int `json:"maxStarting"`
	// Starting is how many are inside. Stuck is how many of them wait for something other than the
	// machine.
	Starting int `json:"starting"`
	Stuck    int `json:"stuck"`
	// Wakes and Creates are how many wait in each lane.
	Wakes     int `json:"wakesWaiting"`
	Creates   int `json:"createsWaiting"`
	MaxQueued int `json:"maxQueued"`
	Tenants   int `json:"tenants"` // that are inside or wait
	// MeanMS is how long a start takes lately, and WaitMS how long a new request would wait, both
	// in milliseconds.
	MeanMS float64 `json:"meanMs"`
	WaitMS float64 `json:"waitMs"`
	// Totals since the gate was made: let in, refused, and hung up while they waited.
	Admitted uint64 `json:"admitted"`
	Refused  uint64 `json:"refused"`
	Left     uint64 `json:"left"`
	// RefusedBy splits Refused by its reasons. Waited is how long those waited that were let in.
	RefusedBy map[string]uint64 `json:"-"`
	Waited    map[string]Waits  `json:"-"`
	// Event is the number of the machine's newest event. A gate leaves it 0.
	Event int64 `json:"event,omitempty"`
	// Machine is what is free; nil if nobody measures it. A gate leaves it nil.
	Machine *Machine `json:"machine,omitempty"`
}

// State returns the present state of the gate.
func (g *Gate) State() State {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := State{Limit: g.limit.now(), MaxStarting: g.opts.MaxStarting, Starting: g.inside, Stuck: g.stuck,
		Wakes: g.queued[Wake], Creates: g.queued[Create], MaxQueued: g.opts.MaxQueued,
		MeanMS: g.limit.mean * 1000, Admitted: g.counts.Admitted, Refused: g.counts.refusals(), Left: g.counts.Left,
		RefusedBy: map[string]uint64{}, Waited: map[string]Waits{"wake": g.counts.waited[Wake], "create": g.counts.waited[Create]}}
	for why, n := range g.counts.refused {
		s.RefusedBy[reasonNames[why]] = n
	}
	if g.waiting() > 0 || !g.roomLocked() {
		s.WaitMS = float64(g.waitLocked(g.waiting())) / float64(time.Millisecond)
	}
	for _, t := range g.sharers {
		if t.inside > 0 || t.waiting() > 0 {
			s.Tenants++
		}
	}
	return s
}
