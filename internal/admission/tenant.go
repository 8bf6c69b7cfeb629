package admission

import (
	"container/list"
	"context"
	"strings"
	"time"
)

// tenant is one of those among whom the machine is shared.
type tenant struct {
	name   string
	inside int
	turn   uint64 // when it was last let in
	queue  [lanes]list.List
	seen   time.Time
	// patience is how long its clients have lately been willing to wait; 0 is any time.
	patience time.Duration
}

// place is where a waiter is in its tenant's queue.
type place struct {
	at *list.Element
	in bool
}

func (t *tenant) push(w *waiter) { w.place = place{t.queue[w.req.Lane].PushBack(w), true} }

func (t *tenant) remove(w *waiter) {
	t.queue[w.req.Lane].Remove(w.place.at)
	w.place = place{}
}

func (t *tenant) waiting() int {
	n := 0
	for i := range t.queue {
		n += t.queue[i].Len()
	}
	return n
}

// newest is the one of a lane that came last; nil when none waits.
func (t *tenant) newest(l Lane) *waiter {
	if e := t.queue[l].Back(); e != nil {
		return e.Value.(*waiter)
	}
	return nil
}

// leastPatience is what no hanging up lowers a tenant's patience below.
const leastPatience = 500 * time.Millisecond

// impatient notes that a client hung up that much after it had asked. Work for
// clients that are about to hang up is work for nobody: those who would wait longer
// than half of that are better refused at once. One that hung up by chance changes
// little.
func (t *tenant) impatient(after, most time.Duration) {
	if t.patience == 0 {
		t.patience = most
	}
	t.patience = max(leastPatience, min(t.patience, max(t.patience*4/5, after/2)))
}

// patient notes that one was let in that had waited.
func (t *tenant) patient(most time.Duration) {
	if t.patience > 0 {
		if t.patience += t.patience / 1000; t.patience >= most {
			t.patience = 0
		}
	}
}

// doomed reports whether the client of one that has waited that long is likely to hang up
// before it is served.
func (t *tenant) doomed(waited time.Duration) bool {
	return t.patience > 0 && waited > t.patience*3/2
}

// bound is how long one of its requests may wait.
func (t *tenant) bound(most time.Duration) time.Duration {
	if t.patience > 0 {
		return min(t.patience, most)
	}
	return most
}

// tenant finds or makes a tenant. Called with mu held.
func (g *Gate) tenant(name string) *tenant {
	t, ok := g.tenants[name]
	if !ok {
		t = &tenant{name: name}
		g.tenants[name] = t
	}
	return t
}

// rememberFor is how long a tenant is known after its last request, for its patience.
const rememberFor = time.Minute

// forgetLocked forgets tenants of which nothing is here, one that is just done and,
// now and then, all of them.
func (g *Gate) forgetLocked(t *tenant, now time.Time) {
	idle := func(t *tenant) bool { return t.inside == 0 && t.waiting() == 0 }
	if idle(t) && t.patience == 0 {
		delete(g.tenants, t.name)
	}
	if g.turn%256 != 0 {
		return
	}
	for name, t := range g.tenants {
		if idle(t) && now.Sub(t.seen) > rememberFor {
			delete(g.tenants, name)
		}
	}
}

// nextLocked chooses who of a lane is next: the tenant with the least inside, among
// equals the one that was let in the longest ago, and of it the request that came first.
func (g *Gate) nextLocked(l Lane) *waiter {
	var best *tenant
	for _, t := range g.tenants {
		if t.queue[l].Len() == 0 {
			continue
		}
		if best == nil || t.inside < best.inside || t.inside == best.inside && t.turn < best.turn {
			best = t
		}
	}
	return best.queue[l].Front().Value.(*waiter)
}

// bumpLocked takes the newest request of the tenant with the most out of a full queue,
// to make room for one of a tenant with less; nil when that is no fairer.
func (g *Gate) bumpLocked(t *tenant) *waiter {
	var most *tenant
	for _, o := range g.tenants {
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

// aheadLocked is how many would be let in before another request of a tenant.
func (g *Gate) aheadLocked(t *tenant, l Lane) int {
	own := t.queue[l].Len()
	n := own
	for _, o := range g.tenants {
		if o != t {
			n += min(o.queue[l].Len(), own+1)
		}
	}
	if l == Create {
		n += g.queued[Wake]
	}
	return n
}

type tenantKey struct{}

// maxTenant bounds a tenant's name, in bytes.
const maxTenant = 64

// WithTenant says whose request a context is of.
func WithTenant(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, tenantKey{}, name)
}

// TenantOf returns what WithTenant said; "" when it did not.
func TenantOf(ctx context.Context) string {
	name, _ := ctx.Value(tenantKey{}).(string)
	return name
}

// ValidTenant reports whether a text can be a tenant's name: 1 to 64 letters, digits
// and . _ - @.
func ValidTenant(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-@"
	return name != "" && len(name) <= maxTenant && strings.Trim(name, letters) == ""
}
