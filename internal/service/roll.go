package service

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/btree"

	"github.com/carrel-dev/carrel"
)

// roll finds sandboxes by project, state, start or snapshot, without a scan of all of them. There
// may be very many, nearly all of them paused. It stores each sandbox under a face, which
// [box.enrollLocked] updates after every change of the record.
type roll struct {
	mu     sync.Mutex
	orders map[orderKey]*btree.BTreeG[listed]
	users  map[carrel.SnapshotID]map[*box]int // how often each sandbox names a snapshot
	heads  map[carrel.SnapshotID]int          // sandboxes whose present came after it
	counts map[carrel.State]int
	tally  map[Kin]int // sandboxes by these properties
}

// face holds the fields that the roll finds a sandbox by.
type face struct {
	position
	project      string
	state        carrel.State
	tier         carrel.Tier
	head, paused carrel.SnapshotID // the record's Sandbox.Snapshot and Paused
}

// position is a place in the order of a list: by start, then by ID. It stays valid after its
// sandbox has gone.
type position struct {
	started time.Time
	id      carrel.ID
}

func (p position) compare(q position) int {
	return cmp.Or(p.started.Compare(q.started), cmp.Compare(p.id, q.id))
}

// listed is a sandbox and its place in a list.
type listed struct {
	position
	box *box
}

// part says which sandboxes an order holds.
type part uint8

const (
	everybody part = iota
	awake          // all with an instance, or getting or losing one
	asleep
)

// partOf is the part, besides everybody, that holds the sandboxes in a state.
func partOf(st carrel.State) part {
	if st == carrel.Paused {
		return asleep
	}
	return awake
}

// orderKey names an order of one project, or of all projects ("").
type orderKey struct {
	project string
	part    part
}

const orderDegree = 32

func newRoll() *roll {
	return &roll{orders: map[orderKey]*btree.BTreeG[listed]{}, users: map[carrel.SnapshotID]map[*box]int{},
		heads: map[carrel.SnapshotID]int{}, counts: map[carrel.State]int{}, tally: map[Kin]int{}}
}

// enrollLocked updates the roll from the record. The caller holds box.mu, and calls it after each
// change of the record's state, start, project or snapshots, until the sandbox leaves the table.
func (b *box) enrollLocked() {
	if b.roll == nil {
		return
	}
	sb := &b.rec.Sandbox
	now := face{position{sb.Started, b.id}, sb.Project, sb.State, sb.Tier, sb.Snapshot, b.rec.Paused}
	if b.listed && now == b.face {
		return
	}
	b.roll.mu.Lock()
	defer b.roll.mu.Unlock()
	if b.listed {
		b.roll.changeLocked(b, b.face, now)
	} else {
		b.roll.addLocked(b, now)
	}
	b.face, b.listed = now, true
}

// enroll puts a sandbox on a roll.
func (b *box) enroll(r *roll) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.roll = r
	b.enrollLocked()
}

// strike removes a sandbox from its roll for good.
func (b *box) strike() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listed {
		b.roll.mu.Lock()
		b.roll.removeLocked(b, b.face)
		b.roll.mu.Unlock()
	}
	b.roll, b.listed = nil, false
}

// changeLocked replaces a face. If the new face belongs to the same orders at the same place, it
// changes only the counts. The caller holds mu.
func (r *roll) changeLocked(b *box, before, now face) {
	if before.position == now.position && before.project == now.project && partOf(before.state) == partOf(now.state) {
		r.countLocked(b, before, -1)
		r.countLocked(b, now, 1)
		return
	}
	r.removeLocked(b, before)
	r.addLocked(b, now)
}

func (r *roll) addLocked(b *box, f face) {
	for _, k := range f.orders() {
		t := r.orders[k]
		if t == nil {
			t = btree.NewG(orderDegree, func(a, b listed) bool { return a.compare(b.position) < 0 })
			r.orders[k] = t
		}
		t.ReplaceOrInsert(listed{f.position, b})
	}
	r.countLocked(b, f, 1)
}

func (r *roll) removeLocked(b *box, f face) {
	for _, k := range f.orders() {
		if t := r.orders[k]; t != nil {
			t.Delete(listed{position: f.position})
			if t.Len() == 0 {
				delete(r.orders, k)
			}
		}
	}
	r.countLocked(b, f, -1)
}

// orders lists the orders that a face belongs to.
func (f face) orders() []orderKey {
	p := partOf(f.state)
	keys := []orderKey{{"", everybody}, {"", p}}
	if f.project != "" {
		keys = append(keys, orderKey{f.project, everybody}, orderKey{f.project, p})
	}
	return keys
}

// countLocked adds a face to the counts (d is 1), or removes it (d is −1).
func (r *roll) countLocked(b *box, f face, d int) {
	addTo(r.counts, f.state, d)
	addTo(r.tally, Kin{f.project, f.tier, f.state}, d)
	if f.head != "" {
		addTo(r.heads, f.head, d)
	}
	for _, id := range [...]carrel.SnapshotID{f.head, f.paused} {
		if id == "" {
			continue
		}
		if r.users[id] == nil {
			r.users[id] = map[*box]int{}
		}
		if addTo(r.users[id], b, d); len(r.users[id]) == 0 {
			delete(r.users, id)
		}
	}
}

func addTo[K comparable](m map[K]int, k K, d int) {
	if m[k] += d; m[k] == 0 {
		delete(m, k)
	}
}

// all lists the sandboxes of an order, oldest first.
func (r *roll) all(k orderKey) []*box {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.orders[k]
	if t == nil {
		return nil
	}
	out := make([]*box, 0, t.Len())
	t.Ascend(func(l listed) bool {
		out = append(out, l.box)
		return true
	})
	return out
}

// after lists at most n sandboxes of an order that come after a place. A nil place is the
// beginning.
func (r *roll) after(k orderKey, place *position, oldestFirst bool, n int) []listed {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.orders[k]
	if t == nil {
		return nil
	}
	out := make([]listed, 0, min(n, t.Len()))
	take := func(l listed) bool {
		if place == nil || l.compare(*place) != 0 { // not ==: a cursor's time has another time zone
			out = append(out, l)
		}
		return len(out) < n
	}
	switch {
	case place == nil && oldestFirst:
		t.Ascend(take)
	case place == nil:
		t.Descend(take)
	case oldestFirst:
		t.AscendGreaterOrEqual(listed{position: *place}, take)
	default:
		t.DescendLessOrEqual(listed{position: *place}, take)
	}
	return out
}

// oldest is the start time of the sandbox that started first.
func (r *roll) oldest() (time.Time, bool) {
	first := r.after(orderKey{}, nil, true, 1)
	if len(first) == 0 {
		return time.Time{}, false
	}
	return first[0].started, true
}

// usersOf lists the sandboxes whose records name one of the snapshots.
func (r *roll) usersOf(set map[carrel.SnapshotID]bool) []*box {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := map[*box]bool{}
	for id := range set {
		for b := range r.users[id] {
			found[b] = true
		}
	}
	return slices.Collect(maps.Keys(found))
}

// isHead reports whether the present of any sandbox came after a snapshot.
func (r *roll) isHead(id carrel.SnapshotID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.heads[id] > 0
}

// count counts the sandboxes in a state.
func (r *roll) count(st carrel.State) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[st]
}
