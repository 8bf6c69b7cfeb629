// Package golden knows templates' own starts. A template that has a start and a ready
// command is started once for each size, by nobody's request: when its ready command
// succeeds, that moment is kept, and what is created goes on from it. Its snapshot is kept
// like others, with a record, under no name, and is in no list.
//
// All that such a moment depends on is in its key: it is made anew when that changes.
// [Starts] decides what is made, tried again and given up; a [Host] does it.
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
	mostKept = 16 // those not used for longest go first
	// A start that failed is tried again after so long, and longer each time.
	firstRetry = time.Minute
	lastRetry  = 6 * time.Hour
	// mostBroken is how many restorations in a row may fail for reasons that could pass.
	mostBroken = 3
)

// Of is what a start is of. Its names never change.
type Of struct {
	Template string // the template's ID
	Name     string // and its name
	Tier     carrel.Tier
}

// Make makes one start: it keeps the moment at which its template is ready. took is without
// the wait for its turn.
type Make func(ctx context.Context) (id carrel.SnapshotID, took time.Duration, err error)

// Host does what Starts decides.
type Host interface {
	// Spawn runs fn in a goroutine with the host's lifetime, and reports whether it did.
	Spawn(fn func(life context.Context)) bool
	// IsWanted reports whether a start is still that of a template. Of one that can't be
	// asked for now it is.
	IsWanted(ctx context.Context, key string, of Of) bool
	// Drop removes the snapshots of starts that were given up, as soon as nobody reads them.
	Drop(ids []carrel.SnapshotID)
	// Made tells what became of a try that somebody still wants.
	Made(of Of, took time.Duration, err error)
	// GivenUp tells that nothing can be made from a start, and why.
	GivenUp(of Of, id carrel.SnapshotID, err error)
}

// Starts is what is known of templates' own starts. It is safe for concurrent use.
type Starts struct {
	host Host
	slot chan struct{} // one at a time is made

	mu  sync.Mutex
	all map[string]*start // by key
}

// start is one template's start at one size. It is guarded by Starts.mu but for what it is
// of.
type start struct {
	of       Of
	cancel   context.CancelFunc // ends the making; nil before the first
	id       carrel.SnapshotID  // "" until it is made
	used     time.Time
	making   bool
	problem  string    // why the last try failed
	next     time.Time // no try before
	failures int
	broken   int  // restorations in a row that failed
	verified bool // its content was compared with its sums since this service began
}

// New returns Starts that know none.
func New(host Host) *Starts {
	return &Starts{host: host, slot: make(chan struct{}, 1), all: map[string]*start{}}
}

// Load takes over a start that an earlier service made, and reports whether it did: it
// knows another of that key otherwise.
func (g *Starts) Load(key string, of Of, id carrel.SnapshotID, used time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all[key] != nil {
		return false
	}
	g.all[key] = &start{of: of, id: id, used: used}
	return true
}

// Want returns the start of a key, "" while there is none. It has one made unless a try
// that failed is too fresh; making says that one is.
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

// make has one made and tells what became of it.
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
		return // nobody wants it any more, or the next service begins again
	}
	g.host.Made(of, took, err)
	g.Sweep(life)
}

// end notes what became of a try, and reports whether anybody still wants it.
func (g *Starts) end(key string, id carrel.SnapshotID, err error) bool {
	problem := ""
	if err != nil {
		problem = err.Error()
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

// IsVerified reports whether a start's content was compared with its sums before.
func (g *Starts) IsVerified(key string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	one := g.all[key]
	return one != nil && one.verified
}

// SetVerified notes that it was.
func (g *Starts) SetVerified(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if one := g.all[key]; one != nil {
		one.verified = true
	}
}

// Spoil gives up a start that nothing can be made from: it is damaged, gone, of another
// build or processor, or fails again and again.
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

// remove forgets a start where which still says so, and has its snapshot removed: in the
// background, for some may still read it.
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

// Sweep removes the starts of templates that have changed or are gone, and those beyond
// the most that are kept.
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

// Marked says in a template how its own start is doing.
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
