package admission

import (
	"container/list"
	"time"
)

// sharer is one of those among whom the machine is shared.
type sharer struct {
	name   string
	inside int
	turn   uint64 // when it was last let in
	queue  [lanes]list.List
	seen   time.Time
	// patience is how long its clients have lately been willing to wait; 0 is any time.
	patience time.Duration
}

// place is where a waiter is in its sharer's queue.
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

// newest is the one of a lane that came last; nil when none waits.
func (t *sharer) newest(l Lane) *waiter {
	if e := t.queue[l].Back(); e != nil {
		return e.Value.(*waiter)
	}
	return nil
}

// leastPatience is what no hanging up lowers a sharer's patience below.
const leastPatience = 500 * time.Millisecond

// impatient notes that a client hung up that much after it had asked. Work for
// clients that are about to hang up is work for nobody: those who would wait longer
// than half of that are better refused at once. One that hung up by chance changes
// little.
func (t *sharer) impatient(after, most time.Duration) {
	if t.patience == 0 {
		t.patience = most
	}
	t.patience = max(leastPatience, min(t.patience, max(t.patience*4/5, after/2)))
}

// patient notes that one was let in that had waited.
func (t *sharer) patient(most time.Duration) {
	if t.patience > 0 {
		if t.patience += t.patience / 1000; t.patience >= most {
			t.patience = 0
		}
	}
}

// doomed reports whether the client of one that has waited that long is likely to hang up
// before it is served.
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

// sharer finds or makes a sharer. Called with mu held.
func (g *Gate) sharer(name string) *sharer {
	t, ok := g.sharers[name]
	if !ok {
		t = &sharer{name: name}
		g.sharers[name] = t
	}
	return t
}

// rememberFor is how long a sharer is known after its last request, for its patience.
const rememberFor = time.Minute

// forgetLocked forgets sharers of which nothing is here, one that is just done and,
// now and then, all of them.
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

// nextLocked chooses who of a lane is next: the sharer with the least inside, among
// equals the one that was let in the longest ago, and of it the request that came first.
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

// bumpLocked takes the newest request of the sharer with the most out of a full queue,
// to make room for one of a sharer with less; nil when that is no fairer.
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
	g.counts.Refused++
	return w
}

// aheadLocked is how many would be let in before another request of a sharer.
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
