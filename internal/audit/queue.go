package audit

import (
	"fmt"
	"slices"
	"time"

	"github.com/carrel-dev/carrel"
)

// maxQueued bounds the bytes that wait for the disk.
const maxQueued = 64 << 20

// queue holds the decisions to write. Each sandbox stays within its share.
type queue struct {
	opts Options
	// order numbers the decisions. The two lines are merged by it.
	order            int64
	refused, allowed line
	shares           map[carrel.ID]*share
}

// line is a list of decisions in their order.
type line struct {
	items []queued
	bytes int
}

type queued struct {
	order int64
	cost  int
	d     carrel.Decision
}

func (l *line) push(q queued) {
	l.items = append(l.items, q)
	l.bytes += q.cost
}

func (l *line) pop() queued {
	q := l.items[0]
	l.items[0] = queued{}
	l.items = l.items[1:]
	l.bytes -= q.cost
	return q
}

func (q *queue) init(opts Options) {
	q.opts, q.shares = opts, map[carrel.ID]*share{}
}

// full reports whether there is no room for another decision.
func (q *queue) full() bool {
	return len(q.refused.items)+len(q.allowed.items) >= q.opts.Queue || q.refused.bytes+q.allowed.bytes >= maxQueued
}

// put queues a decision. Without room or beyond the share, it only counts it.
func (q *queue) put(d carrel.Decision, cost int, now time.Time) {
	s := q.shares[d.ID]
	if s == nil {
		s = newShare(q.opts, now)
		q.shares[d.ID] = s
	}
	if !s.take(d.Allowed, cost, now) {
		s.fold(d)
		return
	}
	if !d.Allowed {
		for q.full() && len(q.allowed.items) > 0 {
			oldest := q.shares[q.allowed.pop().d.ID] // a share lives as long as its queued decisions
			oldest.queued--
			oldest.lost++
		}
	}
	switch {
	case !q.full():
		q.add(d, cost)
		s.queued++
	case d.Allowed:
		s.lost++
	default:
		s.fold(d)
	}
}

func (q *queue) add(d carrel.Decision, cost int) {
	q.order++
	to := &q.refused
	if d.Allowed {
		to = &q.allowed
	}
	to.push(queued{q.order, cost, d})
}

// take returns the next decisions to write, in their order. It takes at most most of them, and
// stops after about bytes bytes.
func (q *queue) take(most, bytes int) []carrel.Decision {
	out := make([]carrel.Decision, 0, min(most, len(q.refused.items)+len(q.allowed.items)))
	for size := 0; len(out) < most && size < bytes; {
		from := &q.refused
		switch {
		case len(q.refused.items) == 0 && len(q.allowed.items) == 0:
			return out
		case len(q.refused.items) == 0,
			len(q.allowed.items) > 0 && q.allowed.items[0].order < q.refused.items[0].order:
			from = &q.allowed
		}
		next := from.pop()
		size += next.cost
		q.shares[next.d.ID].queued--
		out = append(out, next.d)
	}
	return out
}

// counts returns decisions that stand for the counted ones. It takes them from sandboxes that have
// a share left, or from all. It forgets shares without contents.
func (q *queue) counts(now time.Time, all bool) []carrel.Decision {
	var out []carrel.Decision
	for id, s := range q.shares {
		if s.lost > 0 {
			out = append(out, carrel.Decision{Time: now.UTC(), ID: id, Allowed: true, Rule: fmt.Sprintf("audit: %d events lost", s.lost),
				Reason: "they came faster than they could be written"})
			s.lost = 0
		}
		if len(s.folds) > 0 && (all || s.hasBytes(now)) {
			out = append(out, s.unfold(now)...)
		}
		if s.idle(now) {
			delete(q.shares, id)
		}
	}
	slices.SortStableFunc(out, func(a, b carrel.Decision) int { return a.Time.Compare(b.Time) })
	return out
}

// addCount queues a decision that stands for many. Only the number of sandboxes bounds these.
func (q *queue) addCount(d carrel.Decision, cost int, now time.Time) {
	s := q.shares[d.ID]
	if s == nil {
		s = newShare(q.opts, now)
		q.shares[d.ID] = s
	}
	q.add(d, cost)
	s.queued++
}
