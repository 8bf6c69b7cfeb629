package admission

import (
	"container/list"
	"time"
)

// sharer is one of the parties that share the machine.
type sharer struct {
	name   string
	inside int
	turn   uint64 // when it was last let in
	queue  [lanes]list.List
	seen   time.Time
	// patience is how long its clients have lately been willing to wait; 0 is no bound.
	patience time.Duration
}

// place is a waiter's place in its sharer's queue.
type place struct {
	at *list.Element
	in bool
}

func (t *sharer) push(w *waiter) { w.place = place{t.queue[w.req.Lane].PushBack(w), true} }

func (t *sharer) remove(w *waiter) {
	t.queue[w.req.Lane].Remove(w.place.at)
	w.place = place{}
}

func (t *sharer) waiting() int {
	n := 0
	for i := range t.queue {
		n += t.queue[i].Len()
	}
	return n
}

// newest returns the last waiter of a lane; nil when none waits.
func (t *sharer) newest(l Lane) *waiter {
	if e := t.queue[l].Back(); e != nil {
		return e.Value.(*waiter)
	}
	return nil
}

// leastPatience is the lower bound of a sharer's patience.
const leastPatience = 500 * time.Millisecond

// impatient notes that a client hung up after this much time. Work for a client that is about to
// hang up is useless. So a request that would wait longer than half of that time is better refused
// at once. A client that hung up by chance changes little.
func (t *sharer) impatient(after, most time.Duration) {
	if t.patience == 0 {
		t.patience = most
	}
	t.patience = max(leastPatience, min(t.patience, max(t.patience*4/5, after/2)))
}

// patient notes that a waiter was let in.
func (t *sharer) patient(most time.Duration) {
	if t.patience > 0 {
		if t.patience += t.patience / 1000; t.patience >= most {
			t.patience = 0
		}
	}
}

// doomed reports whether a client that has waited this long will probably hang up before it is
// served.
func (t *sharer) doomed(waited time.Duration) bool {
	return t.patience > 0 && waited > t.patience*3/2
}

// bound is how long one of its requests may wait.
func (t *sharer) bound(most time.Duration) time.Duration {
	if t.patience > 0 {
		return min(t.patience, most)
	}
	return most
}

// sharer finds or makes a sharer. The caller holds mu.
func (g *Gate) sharer(name string) *sharer {
	t, ok := g.sharers[name]
	if !ok {
		t = &sharer{name: name}
		g.sharers[name] = t
	}
	return t
}

// rememberFor is how long a sharer, with its patience, is remembered after its last request.
const rememberFor = time.Minute

// forgetLocked forgets sharers without requests: t itself and, now and then, all others.
func (g *Gate) forgetLocked(t *sharer, now time.Time) {
	idle := func(t *sharer) bool { return t.inside == 0 && t.waiting() == 0 }
	if idle(t) && t.patience == 0 {
		delete(g.sharers, t.name)
	}
	if g.turn%256 != 0 {
		return
	}
	for name, t := range g.sharers {
		if idle(t) && now.Sub(t.seen) > rememberFor {
			delete(g.sharers, name)
		}
	}
}

// nextLocked chooses the next waiter of a lane. It takes the sharer with the least inside. Among
// equals it takes the one that was let in the longest time ago. Of this sharer it takes the oldest
// request.
func (g *Gate) nextLocked(l Lane) *waiter {
	var best *sharer
	for _, t := range g.sharers {
		if t.queue[l].Len() == 0 {
			continue
		}
		if best == nil || t.inside < best.inside || t.inside == best.inside && t.turn < best.turn {
			best = t
		}
	}
	return best.queue[l].Front().Value.(*waiter)
}

// bumpLocked removes the newest request of the sharer with the most from a full queue. This makes
// room for a request of a sharer with less. It returns nil when that would be no fairer.
func (g *Gate) bumpLocked(t *sharer) *waiter {
	var most *sharer
	for _, o := range g.sharers {
		if most == nil || o.waiting() > most.waiting() {
			most = o
		}
	}
	if most == nil || most.waiting() <= t.waiting()+1 {
		return nil
	}
	w := most.newest(Create)
	if w == nil {
		w = most.newest(Wake)
	}
	most.remove(w)
	g.queued[w.req.Lane]--
	g.counts.refused[queueFull]++
	return w
}

// aheadLocked is how many requests would be let in before another request of a sharer.
func (g *Gate) aheadLocked(t *sharer, l Lane) int {
	own := t.queue[l].Len()
	n := own
	for _, o := range g.sharers {
		if o != t {
			n += min(o.queue[l].Len(), own+1)
		}
	}
	if l == Create {
		n += g.queued[Wake]
	}
	return n
}
