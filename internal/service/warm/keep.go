package warm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/admission"
	"github.com/carrel-dev/carrel/internal/pool"
)

// Op is the pool's operation in errors and logs.
const Op = "keep sandboxes ready"

const (
	// calmTime is how long no creation must have run before a warm sandbox is made, because a
	// caller with a new sandbox is about to use it. yieldTime bounds this wait. Where creations
	// never stop, the pool is needed most.
	calmTime  = 300 * time.Millisecond
	yieldTime = time.Second
)

// What a Host answers.
var (
	// ErrUnripe delays a sandbox that would be dropped as soon as the template's own start is made.
	ErrUnripe = &carrel.Error{Op: Op, Kind: carrel.Conflict, Err: errors.New("its template is being started for the first time")}
	// ErrStale says that a kind now has another key.
	ErrStale = errors.New("its template has changed")
)

var (
	errUnknown = errors.New("nobody knows any more how to make it")
	errClosing = errors.New("the service is closing")
)

// Keep keeps the pool at its target size until ctx ends.
func (p *Pool[S]) Keep(ctx context.Context) {
	if !p.IsOn() {
		return
	}
	tick := time.NewTicker(p.opts.Every)
	defer tick.Stop()
	for {
		p.round(ctx)
		p.freshen(ctx)
		select {
		case <-p.kick:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// round drops excess sandboxes and begins to make missing ones.
func (p *Pool[S]) round(ctx context.Context) {
	floors := p.floorKeys(ctx)
	advice := p.opts.Memory().Advise()
	p.dropStale(ctx)
	p.discardAll(p.shelf.takeExcess(advice, floors, p.room(), time.Now()))
	if advice != pool.Grow {
		return
	}
	usual := max(1, runtime.NumCPU()/2)
	for range usual {
		atOnce := usual
		if p.busy.Load() > 0 {
			atOnce = 1
		}
		key, ok := p.shelf.missing(p.room(), atOnce, time.Now())
		if !ok {
			return
		}
		p.yield(ctx)
		if !p.host.Spawn(func(life context.Context) { p.refill(life, key) }) {
			p.finish(key, 0, errClosing)
			return
		}
		if p.busy.Load() > 0 {
			return // one at a time while a caller waits for a sandbox
		}
	}
}

// room is how many sandboxes may be ready. Warm sandboxes don't count as living, but give their
// places to living ones.
func (p *Pool[S]) room() int {
	if n, bounded := p.host.Room(); bounded {
		return n
	}
	return p.opts.Cap
}

// yield waits until no creation is under way and none ended within calmTime, but at most yieldTime.
func (p *Pool[S]) yield(ctx context.Context) {
	for over := time.Now().Add(yieldTime); ; {
		select { // a token of before
		case <-p.quiet:
		default:
		}
		wait := time.Until(over)
		if p.busy.Load() == 0 {
			wait = min(wait, calmTime-time.Since(time.Unix(0, p.ended.Load())))
		}
		if wait <= 0 {
			return
		}
		select {
		case <-p.quiet:
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// floorKeys finds the keys of the configured floors. It skips templates that do not exist yet.
func (p *Pool[S]) floorKeys(ctx context.Context) map[pool.Key]int {
	out := map[pool.Key]int{}
	for _, f := range p.opts.Floors {
		key, k, err := p.host.Key(ctx, Kind{Template: f.Template, Limits: carrel.Limits{CPUs: f.CPUs, MemoryMB: f.MemoryMB}})
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, ErrUnripe) {
				p.shelf.setProblem(fmt.Errorf("template %s: %w", f.Template, err).Error())
			}
			continue
		}
		out[key] += f.Count
		p.shelf.learn(key, k)
	}
	return out
}

// dropStale forgets kinds whose template was replaced or deleted, with all their sandboxes. After a
// change of templates it checks all kinds, otherwise those with ready sandboxes.
func (p *Pool[S]) dropStale(ctx context.Context) {
	for key, k := range p.shelf.doubtful() {
		now, _, err := p.host.Key(ctx, k)
		if now == key || err != nil && !errors.Is(err, carrel.NotFound) {
			continue // a temporary failure of a driver is no reason
		}
		p.discardAll(p.shelf.forget(key))
	}
}

// refill makes one more sandbox of a key.
func (p *Pool[S]) refill(life context.Context, key pool.Key) {
	began := time.Now()
	err := errUnknown
	if k, ok := p.shelf.kindOf(key); ok {
		var one *One[S]
		if one, err = p.host.Make(life, key, k); err == nil {
			p.shelve(one)
		}
	}
	if errors.Is(err, ErrStale) {
		p.Recheck()
	}
	if err != nil && life.Err() == nil && !errors.Is(err, ErrUnripe) && !errors.Is(err, admission.ErrBusy) {
		p.log.Warn(Op, "kind", key, "err", err)
	}
	p.finish(key, time.Since(began), err)
	p.wake()
}

// finish notes the result of making a sandbox.
func (p *Pool[S]) finish(key pool.Key, took time.Duration, err error) {
	how, problem := made, ""
	switch {
	case err == nil:
	case errors.Is(err, admission.ErrBusy):
		how = busy
	case errors.Is(err, ErrUnripe):
		how = unripe
	case errors.Is(err, carrel.Invalid):
		how, problem = hopeless, err.Error()
	default:
		how, problem = failed, err.Error()
	}
	p.shelf.finish(key, how, problem, took, time.Now())
}

// shelve puts a sandbox on the shelf and watches it.
func (p *Pool[S]) shelve(one *One[S]) {
	watch, stop := context.WithCancel(context.Background())
	one.stop = stop
	p.shelf.addFresh(one, time.Now())
	p.host.Spawn(func(life context.Context) { // if the host is closing, Drain discards it
		defer stop()
		defer context.AfterFunc(life, stop)()
		err := p.host.Wait(watch, one.Sandbox)
		if watch.Err() != nil || !p.shelf.remove(one) {
			return
		}
		p.log.Warn("a sandbox that was ready ended by itself", "sandbox", one.ID, "err", err)
		p.Discard(one)
		p.wake()
	})
}

// freshen runs a command in sandboxes that were long left alone, and ends those whose guest no
// longer answers. This is necessary because an adoption may ask the guest nothing. freshen does
// nothing while the machine is needed for requests.
func (p *Pool[S]) freshen(ctx context.Context) {
	before := time.Now().Add(-p.opts.Fresh) // each sandbox at most once in a round
	for p.busy.Load() == 0 && ctx.Err() == nil {
		one := p.shelf.takeStale(before)
		if one == nil {
			return
		}
		err := p.host.Refresh(ctx, one.Sandbox)
		if p.shelf.putBack(one, err == nil || ctx.Err() != nil, time.Now()) {
			continue
		}
		p.log.Warn("a sandbox that was ready is given up", "sandbox", one.ID, "err", err)
		p.Discard(one)
		p.wake()
	}
}

// Reserve counts an earlier service's warm sandbox as being made, if there is room for it. The host
// reports the result with Revived.
func (p *Pool[S]) Reserve(key pool.Key, k Kind) bool { return p.shelf.reserve(key, k) }

// Revived takes over an earlier service's warm sandbox. If err says why it is unusable, Revived
// ends it.
func (p *Pool[S]) Revived(one *One[S], err error) {
	if err == nil {
		p.shelf.seen(one.Key, time.Now()) // an earlier service saw demand for this kind
		p.shelve(one)
	} else {
		p.Discard(one)
	}
	p.finish(one.Key, 0, err)
	p.wake()
}

// Discard ends a sandbox that is out of the pool, and reports whether that worked. If not, the pool
// tries again.
func (p *Pool[S]) Discard(one *One[S]) bool {
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	one.Unwatch()
	if err := p.host.End(ctx, one.Sandbox); err != nil {
		p.log.Error("destroy a sandbox that was ready", "sandbox", one.ID, "err", err)
		p.shelf.keepStuck(one)
		return false
	}
	p.shelf.countLost()
	return true
}

// discardAll discards several sandboxes at once.
func (p *Pool[S]) discardAll(list []*One[S]) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, max(2, runtime.NumCPU()))
	for _, one := range list {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			p.Discard(one)
		})
	}
	wg.Wait()
}

// Drain discards all ready sandboxes. The caller calls it when nothing else of the pool runs any
// more.
func (p *Pool[S]) Drain() { p.discardAll(p.shelf.takeAll()) }

// sortKinds orders kinds by template, then by size.
func sortKinds(kinds []carrel.PoolKind) {
	slices.SortFunc(kinds, func(a, b carrel.PoolKind) int {
		return cmp.Or(cmp.Compare(a.Template, b.Template), cmp.Compare(a.Tier, b.Tier),
			cmp.Compare(a.Limits.CPUs, b.Limits.CPUs), cmp.Compare(a.Limits.MemoryMB, b.Limits.MemoryMB),
			cmp.Compare(a.Limits.DiskMB, b.Limits.DiskMB), cmp.Compare(a.Limits.Pids, b.Limits.Pids))
	})
}
