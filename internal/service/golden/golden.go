// Package golden manages templates' own starts. The service starts a template with a start and a
// ready command once for each size, without a request. When the ready command succeeds, it takes a
// snapshot, and later sandboxes continue from there. This snapshot has a record like others, but no
// name, and is in no list.
//
// A start's key holds everything that its snapshot depends on. When any of that changes, a new
// start is made. [Starts] decides which starts are made, tried again and given up. A [Host] does
// the work.
//
// # Locks
//
// Starts.mu guards the table. It is a leaf: no Host is called under it.
package golden

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
)

const (
	mostKept = 16 // beyond this, the longest unused are removed
	// firstRetry is the wait after the first failure of a start. It grows with each failure, up to
	// lastRetry.
	firstRetry = time.Minute
	lastRetry  = 6 * time.Hour
	// mostBroken is how many restorations in a row may fail for temporary reasons.
	mostBroken = 3
)

// Of names the template of a start. Its fields never change.
type Of struct {
	Template string // the template's ID
	Name     string // and its name
	Tier     carrel.Tier
}

// Make makes one start: it takes a snapshot when the template is ready. took does not count the
// wait for its turn.
type Make func(ctx context.Context) (id carrel.SnapshotID, took time.Duration, err error)

// Host does the work that Starts decides.
type Host interface {
	// Spawn runs fn in a goroutine with the host's lifetime. It reports false, and runs nothing,
	// when the host is closing.
	Spawn(fn func(life context.Context)) bool
	// IsWanted reports whether a template still has the start with this key. If the host can't find
	// out now, it reports true.
	IsWanted(ctx context.Context, key string, of Of) bool
	// Drop removes the snapshots of starts that were given up, as soon as nobody reads them.
	Drop(ids []carrel.SnapshotID)
	// Made reports the result of a try, if the start is still wanted.
	Made(of Of, took time.Duration, err error)
	// GivenUp reports that a start is unusable, and why.
	GivenUp(of Of, id carrel.SnapshotID, err error)
}

// Starts holds the state of templates' own starts. It is safe for concurrent use.
type Starts struct {
	host Host
	slot chan struct{} // one at a time is made

	mu  sync.Mutex
	all map[string]*start // by key
}

// start is one template's start at one size. Starts.mu guards it, except of, which never changes.
type start struct {
	of       Of
	cancel   context.CancelFunc // ends the making; nil before the first
	id       carrel.SnapshotID  // "" until it is made
	used     time.Time
	making   bool
	problem  string    // why the last try failed
	next     time.Time // no try before
	failures int
	broken   int  // failed restorations in a row
	verified bool // this service has checked its content against its sums
}

// New returns an empty Starts.
func New(host Host) *Starts {
	return &Starts{host: host, slot: make(chan struct{}, 1), all: map[string]*start{}}
}

// Load adds a start that an earlier service made. It reports false when the key already has one.
func (g *Starts) Load(key string, of Of, id carrel.SnapshotID, used time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all[key] != nil {
		return false
	}
	g.all[key] = &start{of: of, id: id, used: used}
	return true
}

// Want returns the start of a key, or "" while there is none. If there is none, it has one made,
// unless a try failed a short time ago. making says that a start is being made.
func (g *Starts) Want(key string, of Of, build Make) (id carrel.SnapshotID, making bool) {
	now := time.Now()
	ctx, cancel := context.WithCancel(context.Background())
	g.mu.Lock()
	one := g.all[key]
	if one == nil {
		one = &start{of: of}
		g.all[key] = one
	}
	one.used = now
	id = one.id
	begin := id == "" && !one.making && !now.Before(one.next)
	if begin {
		one.making, one.cancel = true, cancel
	}
	making = one.making
	g.mu.Unlock()
	switch {
	case !begin:
		cancel()
	case !g.host.Spawn(func(life context.Context) {
		defer context.AfterFunc(life, cancel)()
		g.make(ctx, life, key, of, build)
	}):
		g.end(key, "", errClosing)
	}
	return id, making
}

var errClosing = errors.New("the service is closing")

// make has a start made, and reports the result.
func (g *Starts) make(ctx, life context.Context, key string, of Of, build Make) {
	select {
	case g.slot <- struct{}{}:
		defer func() { <-g.slot }()
	case <-ctx.Done():
		g.end(key, "", context.Cause(ctx))
		return
	}
	id, took, err := build(ctx)
	if !g.end(key, id, err) || life.Err() != nil && err != nil {
		return // no longer wanted, or left to the next service
	}
	g.host.Made(of, took, err)
	g.Sweep(life)
}

// end notes the result of a try, and reports whether the start is still wanted.
func (g *Starts) end(key string, id carrel.SnapshotID, err error) bool {
	problem := ""
	if err != nil {
		if problem = err.Error(); carrel.HintOf(err) != "" {
			problem += "; " + carrel.HintOf(err)
		}
	}
	cancel := func() {}
	g.mu.Lock()
	one := g.all[key]
	if one != nil {
		cancel = one.cancel
		one.making, one.id, one.problem = false, id, problem
		if err != nil {
			one.next = time.Now().Add(min(firstRetry<<min(one.failures, 10), lastRetry))
			one.failures++
		}
	}
	g.mu.Unlock()
	cancel()
	if one == nil && id != "" { // given up meanwhile
		g.host.Drop([]carrel.SnapshotID{id})
	}
	return one != nil
}

// Worked notes that a restoration worked.
func (g *Starts) Worked(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if one := g.all[key]; one != nil {
		one.broken = 0
	}
}

// IsVerified reports whether a start's content was checked against its sums before.
func (g *Starts) IsVerified(key string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	one := g.all[key]
	return one != nil && one.verified
}

// SetVerified notes that a start's content was checked.
func (g *Starts) SetVerified(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if one := g.all[key]; one != nil {
		one.verified = true
	}
}

// Spoil gives up an unusable start. It is damaged, gone, from another build or processor, or it
// fails again and again.
func (g *Starts) Spoil(key string, of Of, id carrel.SnapshotID, err error) {
	g.mu.Lock()
	over := false
	if one := g.all[key]; one != nil {
		one.broken++
		over = one.broken >= mostBroken
	}
	g.mu.Unlock()
	switch carrel.KindOf(err) {
	case carrel.Invalid, carrel.NotFound, carrel.Unsupported:
	default:
		if !over {
			return
		}
	}
	g.host.GivenUp(of, id, err)
	g.remove(key, func(one *start) bool { return one.id == id })
}

// remove forgets a start if which still agrees, and has its snapshot removed. This happens in the
// background, because others may still read the snapshot.
func (g *Starts) remove(key string, which func(*start) bool) {
	g.mu.Lock()
	one := g.all[key]
	if one == nil || !which(one) {
		g.mu.Unlock()
		return
	}
	delete(g.all, key)
	id, cancel := one.id, one.cancel
	g.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	if id != "" {
		g.host.Drop([]carrel.SnapshotID{id})
	}
}

// Sweep removes the starts of templates that have changed or are gone, and those beyond mostKept.
func (g *Starts) Sweep(ctx context.Context) {
	g.mu.Lock()
	all := maps.Clone(g.all)
	byUse := slices.SortedFunc(maps.Keys(all), func(a, b string) int { return all[b].used.Compare(all[a].used) })
	g.mu.Unlock()
	for i, key := range byUse {
		one := all[key]
		if (i >= mostKept || !g.host.IsWanted(ctx, key, one.of)) && ctx.Err() == nil {
			g.remove(key, func(now *start) bool { return now == one })
		}
	}
}

// Marked returns a template with the status of its own start.
func (g *Starts) Marked(t carrel.Template) carrel.Template {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range g.all {
		switch {
		case one.of.Template != t.ID || t.Ready == "":
		case one.id != "":
			t.Golden = "ready"
		case t.Golden == "ready":
		case one.making:
			t.Golden = "making"
		case one.problem != "" && t.Golden == "":
			t.Golden = one.problem
		}
	}
	return t
}
