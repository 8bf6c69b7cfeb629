package warm

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/pool"
)

// A kind that can't be made is tried again after a wait. The wait grows with each failure.
const (
	firstRetry = time.Second
	lastRetry  = 2 * time.Minute
	// hopelessRetry is the wait after the kind itself was refused, for example for too little
	// memory for its tier. Only another template or another driver could change that.
	hopelessRetry = time.Hour
)

// shelf holds the ready sandboxes and the state of the wanted kinds. Each method is one step under
// the lock and calls no foreign code. The caller acts on the results.
type shelf[S any] struct {
	most int // that may be ready

	mu      sync.Mutex
	sizer   *pool.Sizer
	ready   map[pool.Key][]*One[S] // oldest first
	away    *One[S]                // the one that is being checked now
	making  map[pool.Key]int
	kinds   map[pool.Key]*knownKind
	targets map[pool.Key]int
	floors  map[pool.Key]int
	stuck   []*One[S] // could not be ended; tried again
	advice  pool.Advice
	hits    int64
	misses  int64
	lost    int64
	problem string
	stale   bool // templates have changed
}

// knownKind is a Kind and the results of the tries to make it.
type knownKind struct {
	Kind
	hits, misses int64
	failures     int
	next         time.Time // not before, after a failure
}

func (h *shelf[S]) init(most int) {
	h.most = most
	h.sizer = pool.New(pool.Config{Cap: most})
	h.ready, h.making, h.kinds = map[pool.Key][]*One[S]{}, map[pool.Key]int{}, map[pool.Key]*knownKind{}
}

// take takes out a sandbox of a key, or counts a miss.
func (h *shelf[S]) take(key pool.Key, k Kind, now time.Time) *One[S] {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sizer.Asked(key, now)
	h.learnLocked(key, k)
	known, list := h.kinds[key], h.ready[key]
	if len(list) == 0 {
		known.misses++
		h.misses++
		return nil
	}
	// Take the newest: its memory is most likely still in the processor's caches.
	last := len(list) - 1
	one := list[last]
	list[last] = nil
	h.ready[key] = list[:last]
	known.hits++
	h.hits++
	return one
}

// learn remembers how to make a key.
func (h *shelf[S]) learn(key pool.Key, k Kind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.learnLocked(key, k)
}

func (h *shelf[S]) learnLocked(key pool.Key, k Kind) {
	if h.kinds[key] == nil {
		h.kinds[key] = &knownKind{Kind: k}
	}
}

// kindOf returns the kind of a key. ok is false when it is not known.
func (h *shelf[S]) kindOf(key pool.Key) (k Kind, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if known := h.kinds[key]; known != nil {
		return known.Kind, true
	}
	return Kind{}, false
}

// add puts a sandbox on the shelf as it is.
func (h *shelf[S]) add(one *One[S]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ready[one.Key] = append(h.ready[one.Key], one)
}

// addFresh puts a sandbox on the shelf that has just run a command.
func (h *shelf[S]) addFresh(one *One[S], now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one.fresh = now
	h.ready[one.Key] = append(h.ready[one.Key], one)
}

// remove removes a sandbox that has ended by itself from the shelf, and reports whether it was
// still there. If a caller has taken it out, isDead tells that caller.
func (h *shelf[S]) remove(one *One[S]) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.Index(h.ready[one.Key], one)
	if i < 0 {
		one.dead = true
		return false
	}
	h.ready[one.Key] = slices.Delete(h.ready[one.Key], i, i+1)
	return true
}

func (h *shelf[S]) isDead(one *One[S]) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return one.dead
}

func (h *shelf[S]) countLost() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost++
}

func (h *shelf[S]) markStale() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stale = true
}

// keepStuck keeps a sandbox that could not be ended, for another try.
func (h *shelf[S]) keepStuck(one *One[S]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stuck = append(h.stuck, one)
}

// committedMB is the memory that the ready sandboxes may take from the machine.
func (h *shelf[S]) committedMB() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	sum := 0
	if h.away != nil {
		sum = h.away.CommittedMB
	}
	for _, list := range h.ready {
		for _, one := range list {
			sum += one.CommittedMB
		}
	}
	return sum
}

// giveUp takes out as many sandboxes as needed to free this much memory.
func (h *shelf[S]) giveUp(memoryMB int) (out []*One[S]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, list := range h.ready {
		n := 0
		for ; n < len(list) && memoryMB > 0; n++ {
			memoryMB -= list[n].LimitMB
		}
		out = append(out, h.takeOldestLocked(key, n)...)
	}
	return out
}

// takeExcess sets the targets and takes out the sandboxes beyond them. It takes out more when
// memory is short or living sandboxes need the places. It is one step: a request that comes at the
// same time is either counted in the targets, or finds nothing of its kind dropped or forgotten.
func (h *shelf[S]) takeExcess(advice pool.Advice, floors map[pool.Key]int, room int, now time.Time) []*One[S] {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.advice, h.floors = advice, floors
	h.targets = h.sizer.Targets(now, floors)
	out := h.stuck
	h.stuck = nil
	for key, list := range h.ready {
		if n := len(list) - h.targets[key]; n > 0 {
			out = append(out, h.takeOldestLocked(key, n)...)
		}
		if len(h.ready[key]) == 0 {
			delete(h.ready, key)
		}
	}
	total := h.countLocked()
	over := total - room
	if advice == pool.Shrink {
		over = max(over, (total+3)/4) // a quarter with each look
	}
	for key, list := range h.ready {
		n := min(max(over, 0), len(list))
		out = append(out, h.takeOldestLocked(key, n)...)
		over -= n
	}
	for key := range h.kinds { // forget the kinds without demand
		if h.targets[key] == 0 && h.making[key] == 0 && len(h.ready[key]) == 0 {
			delete(h.kinds, key)
		}
	}
	return out
}

// takeOldestLocked takes out the n oldest ready sandboxes of a kind.
func (h *shelf[S]) takeOldestLocked(key pool.Key, n int) []*One[S] {
	list := h.ready[key]
	h.ready[key] = slices.Clone(list[n:])
	return list[:n]
}

// takeAll empties the shelf.
func (h *shelf[S]) takeAll() (out []*One[S]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, list := range h.ready {
		out = append(out, list...)
	}
	out = append(out, h.stuck...)
	h.ready, h.stuck = map[pool.Key][]*One[S]{}, nil
	return out
}

// doubtful lists the kinds whose keys may have changed. After a change of templates these are all
// kinds, otherwise those with ready sandboxes.
func (h *shelf[S]) doubtful() map[pool.Key]Kind {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[pool.Key]Kind{}
	for key, k := range h.kinds {
		if h.stale || len(h.ready[key]) > 0 {
			out[key] = k.Kind
		}
	}
	h.stale = false
	return out
}

// forget drops everything known of a key, and takes out its ready sandboxes.
func (h *shelf[S]) forget(key pool.Key) []*One[S] {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.ready[key]
	delete(h.ready, key)
	delete(h.kinds, key)
	h.sizer.Forget(key)
	return list
}

// takeStale takes out a sandbox that was last used before a given time. It returns nil when there
// is none, or memory is short.
func (h *shelf[S]) takeStale(before time.Time) *One[S] {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.advice != pool.Grow {
		return nil
	}
	for key, list := range h.ready {
		for i, one := range list {
			if one.fresh.Before(before) {
				h.ready[key] = append(list[:i:i], list[i+1:]...)
				h.away = one
				return one
			}
		}
	}
	return nil
}

// putBack puts a sandbox back if it is well and has not ended since it was taken out. It reports
// whether it did.
func (h *shelf[S]) putBack(one *One[S], well bool, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.away = nil
	if !well || one.dead {
		return false
	}
	one.fresh = now
	h.ready[one.Key] = append(h.ready[one.Key], one) // the newest is adopted first
	return true
}

// missing picks the key that lacks the most sandboxes, and counts one of it as being made. atOnce
// is how many may be made at once.
func (h *shelf[S]) missing(room, atOnce int, now time.Time) (best pool.Key, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	making := h.makingLocked()
	if making >= atOnce || h.countLocked()+making >= min(h.most, room) {
		return "", false
	}
	most := 0
	for _, key := range slices.Sorted(maps.Keys(h.targets)) {
		k := h.kinds[key]
		if k == nil || now.Before(k.next) {
			continue
		}
		lack := h.targets[key] - len(h.ready[key]) - h.making[key]
		if len(h.ready[key])+h.making[key] < h.floors[key] {
			lack += h.most // floors first
		}
		if lack > most {
			best, most = key, lack
		}
	}
	if most == 0 {
		return "", false
	}
	h.making[best]++
	return best, true
}

// reserve counts one sandbox of a key as being made, if there is room for it.
func (h *shelf[S]) reserve(key pool.Key, k Kind) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.countLocked()+h.makingLocked() >= h.most {
		return false
	}
	h.learnLocked(key, k)
	h.making[key]++
	return true
}

// seen counts a request for a key.
func (h *shelf[S]) seen(key pool.Key, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sizer.Asked(key, now)
}

// countLocked counts the sandboxes that are ready or could not be ended.
func (h *shelf[S]) countLocked() int {
	n := len(h.stuck)
	if h.away != nil {
		n++
	}
	for _, list := range h.ready {
		n += len(list)
	}
	return n
}

func (h *shelf[S]) makingLocked() int {
	n := 0
	for _, of := range h.making {
		n += of
	}
	return n
}

// setProblem remembers why a sandbox could not be made, for the status.
func (h *shelf[S]) setProblem(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.problem = text
}

// outcome is the result of making a sandbox.
type outcome int

const (
	made   outcome = iota // it is there
	busy                  // decided anew at once: other kinds may lack more by now
	unripe                // its template's own start is not made yet
	failed
	hopeless // it was refused for what it is
)

// finish ends the making of a sandbox of a key. problem is why it failed.
func (h *shelf[S]) finish(key pool.Key, how outcome, problem string, took time.Duration, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.making[key]--; h.making[key] <= 0 {
		delete(h.making, key)
	}
	k := h.kinds[key]
	switch how {
	case made:
		h.sizer.Refilled(took)
		h.problem = ""
		if k != nil {
			k.failures = 0
		}
	case unripe:
		if k != nil {
			k.next = now.Add(firstRetry)
		}
	case hopeless:
		h.problem = problem
		if k != nil {
			k.next = now.Add(hopelessRetry)
		}
	case failed:
		h.problem = problem
		if k != nil {
			k.next = now.Add(min(firstRetry<<min(k.failures, 10), lastRetry))
			k.failures++
		}
	}
}

// status returns the shelf's part of the status, with the kinds in any order.
func (h *shelf[S]) status() carrel.PoolStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	st := carrel.PoolStatus{Memory: h.advice.String(), Hits: h.hits, Misses: h.misses, Lost: h.lost,
		Problem: h.problem, Kinds: []carrel.PoolKind{}}
	for key, k := range h.kinds {
		pk := carrel.PoolKind{Template: k.Template, Tier: k.Tier, Limits: k.Limits, Golden: k.Golden, Ready: len(h.ready[key]),
			Making: h.making[key], Target: h.targets[key], Floor: h.floors[key], Hits: k.hits, Misses: k.misses}
		if h.away != nil && h.away.Key == key {
			pk.Ready++
		}
		st.Ready += pk.Ready
		st.Making += pk.Making
		st.Kinds = append(st.Kinds, pk)
	}
	return st
}
