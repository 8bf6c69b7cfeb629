package service

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/cleanup"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/pool"
	"github.com/carrel-dev/carrel/internal/state"
)

const (
	opWarm = "keep sandboxes ready"
	// yieldTime is how long making one waits for creations under way: they go first, but
	// where there is always one the pool is needed most.
	yieldTime = 200 * time.Millisecond
	// A kind that can't be made is tried again after so long, and longer each time.
	firstWarmRetry = time.Second
	lastWarmRetry  = 2 * time.Minute
)

// keepWarm keeps the pool at its size until the service closes.
func (s *Service) keepWarm() {
	w := &s.warm
	if !w.on() {
		return
	}
	tick := time.NewTicker(w.opts.Every)
	defer tick.Stop()
	for {
		s.keepRound()
		select {
		case <-w.kick:
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}
	}
}

// keepRound drops what is too much and begins to make what is missing.
func (s *Service) keepRound() {
	w := &s.warm
	floors := s.warmFloors()
	advice := w.opts.Memory().Advise()
	s.dropStale()
	w.mu.Lock()
	w.advice, w.floors = advice, floors
	w.targets = w.sizer.Targets(time.Now(), floors)
	w.mu.Unlock()
	s.dropExcess(advice)
	if advice != pool.Grow {
		return
	}
	for range max(1, runtime.NumCPU()/2) {
		key, ok := w.missing(s.room())
		if !ok {
			return
		}
		s.yield()
		if !s.spawn(func() { s.refill(key) }) {
			w.made(key, 0, errClosing)
			return
		}
		if w.busy.Load() > 0 {
			return // one at a time, while somebody waits for a sandbox
		}
	}
}

// yield waits until no creation is under way, for a moment.
func (s *Service) yield() {
	select { // a token of before
	case <-s.warm.quiet:
	default:
	}
	if s.warm.busy.Load() == 0 {
		return
	}
	t := time.NewTimer(yieldTime)
	defer t.Stop()
	select {
	case <-s.warm.quiet:
	case <-t.C:
	case <-s.ctx.Done():
	}
}

// warmFloors finds the keys of the configured floors. A template that is not there yet
// has none.
func (s *Service) warmFloors() map[pool.Key]int {
	out := map[pool.Key]int{}
	for _, f := range s.warm.opts.Floors {
		k := &kind{template: f.Template, limits: carrel.Limits{CPUs: f.CPUs, MemoryMB: f.MemoryMB}}
		p, key, err := s.planWarm(s.ctx, k)
		if err != nil {
			if s.ctx.Err() == nil && !errors.Is(err, errUnripe) {
				s.warm.fail(fmt.Errorf("template %s: %w", f.Template, err))
			}
			continue
		}
		out[key] += f.Count
		s.warm.mu.Lock()
		if s.warm.kinds[key] == nil {
			s.warm.kinds[key] = kindOf(p)
		}
		s.warm.mu.Unlock()
	}
	return out
}

// errUnripe holds back what would be dropped as soon as the template's own start is made.
var errUnripe = &carrel.Error{Op: opWarm, Kind: carrel.Conflict, Err: errors.New("its template is being started for the first time")}

// planWarm plans another sandbox of a kind, under the key that it has today.
func (s *Service) planWarm(ctx context.Context, k *kind) (*plan, pool.Key, error) {
	opts := carrel.CreateOptions{Template: k.template, Tier: k.tier, Limits: k.limits}
	p, err := s.plan(ctx, opts)
	if err != nil {
		return nil, "", err
	}
	key, ok := s.keyOf(p)
	if !ok {
		if p.from != nil {
			p.from.release()
		}
		return nil, "", &carrel.Error{Op: opWarm, Kind: carrel.Unsupported, Err: errors.New("sandboxes of this kind are not kept ready")}
	}
	if p.unripe {
		return nil, "", errUnripe
	}
	return p, key, nil
}

// room is how many more instances there may be. Those that are ready don't count as
// living, but make room for them.
func (s *Service) room() int {
	s.mu.Lock()
	live := s.live
	s.mu.Unlock()
	if most := s.opts.MaxSandboxes; most > 0 {
		return most - live
	}
	return s.warm.opts.Cap
}

// missing picks the key that lacks most, and counts one of it as being made.
func (w *warmPool) missing(room int) (best pool.Key, ok bool) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	making := 0
	for _, n := range w.making {
		making += n
	}
	there := w.countLocked() + making
	if making >= max(1, runtime.NumCPU()/2) || making > 0 && w.busy.Load() > 0 || there >= min(w.opts.Cap, room) {
		return "", false
	}
	most := 0
	for _, key := range slices.Sorted(maps.Keys(w.targets)) {
		k := w.kinds[key]
		if k == nil || now.Before(k.next) {
			continue
		}
		lack := w.targets[key] - len(w.ready[key]) - w.making[key]
		if len(w.ready[key])+w.making[key] < w.floors[key] {
			lack += w.opts.Cap // floors first
		}
		if lack > most {
			best, most = key, lack
		}
	}
	if most == 0 {
		return "", false
	}
	w.making[best]++
	return best, true
}

// countLocked counts what is ready, or could not be destroyed. Called with mu held.
func (w *warmPool) countLocked() int {
	n := len(w.stuck)
	for _, list := range w.ready {
		n += len(list)
	}
	return n
}

// fail remembers why something could not be made, for who asks.
func (w *warmPool) fail(err error) {
	w.mu.Lock()
	w.problem = err.Error()
	w.mu.Unlock()
}

// made ends the making of one.
func (w *warmPool) made(key pool.Key, took time.Duration, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.making[key]--; w.making[key] <= 0 {
		delete(w.making, key)
	}
	k := w.kinds[key]
	if err == nil {
		w.sizer.Refilled(took)
		w.problem = ""
		if k != nil {
			k.failures = 0
		}
		return
	}
	if errors.Is(err, errUnripe) {
		if k != nil {
			k.next = time.Now().Add(firstWarmRetry)
		}
		return
	}
	w.problem = err.Error()
	if k != nil {
		k.next = time.Now().Add(min(firstWarmRetry<<min(k.failures, 10), lastWarmRetry))
		k.failures++
	}
}

// refill makes one more of a key.
func (s *Service) refill(key pool.Key) {
	w := &s.warm
	began := time.Now()
	w.mu.Lock()
	k := w.kinds[key]
	w.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(s.ctx, s.opts.StartTimeout, fmt.Errorf("it was not ready within %v", s.opts.StartTimeout))
	defer cancel()
	err := errors.New("nobody knows any more how to make it")
	if k != nil {
		err = s.makeWarm(ctx, key, k)
	}
	if err != nil && s.ctx.Err() == nil && !errors.Is(err, errUnripe) {
		s.log.Warn(opWarm, "kind", key, "err", err)
	}
	w.made(key, time.Since(began), err)
	w.wake()
}

// makeWarm makes one sandbox and puts it into the pool, or leaves nothing.
func (s *Service) makeWarm(ctx context.Context, key pool.Key, k *kind) error {
	p, now, err := s.planWarm(ctx, k)
	if err != nil {
		return err
	}
	if now != key {
		s.warm.recheck()
		return errors.New("its template has changed")
	}
	if s.openGolden(ctx, p) {
		defer p.from.release() // follow has a share of its own
	}
	p.rec.Sandbox.State, p.rec.Env, p.rec.Sandbox.AccessToken = state.Warm, nil, newToken()
	b := s.newBox(p.rec, func(error) {})
	var undo cleanup.Stack
	defer undo.Run()
	if err := os.Mkdir(b.dir, 0o700); err != nil {
		return fmt.Errorf("make the sandbox's directory: %w", err)
	}
	undo.Add(func() { _ = os.RemoveAll(b.dir) })
	if err := s.recordWarm(ctx, b); err != nil {
		return err
	}
	undo.Add(func() { s.unrecord(b) })
	inst, line, err := s.stand(ctx, b, p.driver, p.root, p.from)
	if err != nil {
		s.spoilGolden(p, err)
		return err
	}
	undo.Add(func() { s.destroy(b, inst) })
	undo.Add(line.hangUp)
	b.adopt(inst, line.conn(b.rec.Sandbox), p.ttl)
	if err := p.from.check(ctx); err != nil {
		s.spoilGolden(p, err)
		return err
	}
	if err := s.placeholder(ctx, b, line); err != nil {
		return err
	}
	if err := s.recordWarm(ctx, b); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(b.dir, readyMark), nil, 0o600); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	undo.Release()
	s.letGo(b.id, inst, p.from.share())
	s.shelve(&warm{box: b, line: line, key: key, boots: p.from.boots(), driver: p.driver})
	return nil
}

// recordWarm writes the record of one that is nobody's yet, without its token: nobody
// is to know it.
func (s *Service) recordWarm(ctx context.Context, b *box) error {
	rec := b.record()
	rec.Sandbox.AccessToken = ""
	return s.opts.Store.PutSandbox(ctx, rec)
}

// shelve puts one into the pool and watches it.
func (s *Service) shelve(one *warm) {
	ctx, stop := context.WithCancel(s.ctx)
	one.stop = stop
	w := &s.warm
	w.mu.Lock()
	w.ready[one.key] = append(w.ready[one.key], one)
	w.mu.Unlock()
	s.spawn(func() { // where it can't, Close discards it
		defer stop()
		_, err := one.line.inst.Wait(ctx)
		if ctx.Err() != nil || !w.remove(one) {
			return
		}
		s.log.Warn("a sandbox that was ready ended by itself", "sandbox", one.box.id, "err", err)
		s.discard(one)
		w.wake()
	})
}

// remove takes one out of the pool, and reports whether it was still there.
func (w *warmPool) remove(one *warm) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(w.ready[one.key], one)
	if i < 0 {
		return false
	}
	w.ready[one.key] = slices.Delete(w.ready[one.key], i, i+1)
	return true
}

// discard ends one that is out of the pool. One that can't be ended is tried again.
func (s *Service) discard(one *warm) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), endTime)
	defer cancel()
	one.stop()
	w := &s.warm
	one.line.hangUp()
	one.box.closeConn()
	if err := one.line.inst.Destroy(ctx); err != nil {
		s.log.Error("destroy a sandbox that was ready", "sandbox", one.box.id, "err", err)
		w.mu.Lock()
		w.stuck = append(w.stuck, one)
		w.mu.Unlock()
		return
	}
	if err := s.forgetWarm(ctx, one.box.id); err != nil {
		s.log.Error("forget a sandbox that was ready", "sandbox", one.box.id, "err", err)
	}
	w.spoiled()
}

// forgetWarm removes what is left of one whose instance is gone.
func (s *Service) forgetWarm(ctx context.Context, id carrel.ID) error {
	err := s.opts.Store.DeleteSandbox(ctx, id)
	return errors.Join(err, os.RemoveAll(filepath.Join(s.opts.Dir, string(id))))
}

// dropExcess gives up what is over the targets, and more where memory is short or
// living sandboxes need the place.
func (s *Service) dropExcess(advice pool.Advice) {
	w := &s.warm
	room := s.room()
	w.mu.Lock()
	out := w.stuck
	w.stuck = nil
	for key, list := range w.ready {
		if n := len(list) - w.targets[key]; n > 0 {
			out = append(out, list[:n]...)
			w.ready[key] = slices.Clone(list[n:])
		}
		if len(w.ready[key]) == 0 {
			delete(w.ready, key)
		}
	}
	total := w.countLocked()
	over := total - room
	if advice == pool.Shrink {
		over = max(over, (total+3)/4) // a quarter with each look
	}
	for key, list := range w.ready {
		n := min(max(over, 0), len(list))
		out = append(out, list[:n]...)
		w.ready[key] = slices.Clone(list[n:])
		over -= n
	}
	for key, k := range w.kinds { // what is known of kinds that nobody wants
		if w.targets[key] == 0 && w.making[key] == 0 && len(w.ready[key]) == 0 && k != nil {
			delete(w.kinds, key)
		}
	}
	w.mu.Unlock()
	s.discardAll(out)
}

// discardAll discards some at once.
func (s *Service) discardAll(list []*warm) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, max(2, runtime.NumCPU()))
	for _, one := range list {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			s.discard(one)
		})
	}
	wg.Wait()
}

// dropStale forgets kinds whose template was replaced or deleted, with all that was
// made of them. It looks when it was told of a change, and at those that are ready.
func (s *Service) dropStale() {
	w := &s.warm
	w.mu.Lock()
	todo := maps.Clone(w.kinds)
	if !w.stale {
		maps.DeleteFunc(todo, func(key pool.Key, _ *kind) bool { return len(w.ready[key]) == 0 })
	}
	w.stale = false
	w.mu.Unlock()
	for key, k := range todo {
		_, now, err := s.planWarm(s.ctx, k)
		if now == key || err != nil && !errors.Is(err, carrel.NotFound) {
			continue // a driver that fails for a moment is no reason
		}
		w.mu.Lock()
		list := w.ready[key]
		delete(w.ready, key)
		delete(w.kinds, key)
		w.sizer.Forget(key)
		w.mu.Unlock()
		s.discardAll(list)
	}
}

// drainWarm discards all that is ready, when nothing else runs any more.
func (s *Service) drainWarm() {
	w := &s.warm
	w.mu.Lock()
	var list []*warm
	for _, l := range w.ready {
		list = append(list, l...)
	}
	list = append(list, w.stuck...)
	w.ready, w.stuck = map[pool.Key][]*warm{}, nil
	w.mu.Unlock()
	s.discardAll(list)
}

// recoverWarm deals with one that an earlier service had ready. It is taken over where it
// is still of use and certainly nobody's; else it is ended. kept says that it must stay.
func (s *Service) recoverWarm(ctx context.Context, rec state.Record, inst driver.Instance) (kept bool, err error) {
	id := rec.Sandbox.ID
	if inst == nil {
		return false, s.forgetWarm(ctx, id)
	}
	b := s.newBox(rec, func(error) {})
	b.rec.Sandbox.AccessToken = newToken()
	one := &warm{box: b, line: &line{inst: inst}, boots: rec.Sandbox.Generation == 0, stop: func() {}}
	b.inst, b.conn = inst, one.line.conn(b.rec.Sandbox)
	if s.canRecover(ctx, one) && s.spawn(func() { s.reviveWarm(one) }) {
		return true, nil
	}
	s.discard(one)
	s.warm.mu.Lock()
	defer s.warm.mu.Unlock()
	return slices.Contains(s.warm.stuck, one), nil
}

// canRecover reports whether one that an earlier service had ready is of use, and if so
// counts it as being made.
func (s *Service) canRecover(ctx context.Context, one *warm) bool {
	w := &s.warm
	rec := one.box.rec
	if _, err := os.Stat(filepath.Join(one.box.dir, readyMark)); err != nil || !w.on() {
		return false
	}
	k := &kind{template: rec.Sandbox.Template, tier: rec.Sandbox.Tier, limits: rec.Sandbox.Limits}
	if rec.Sandbox.Alias != "" {
		k.template = rec.Sandbox.Alias
	}
	p, key, err := s.planWarm(ctx, k)
	if err != nil || keyOfRecord(rec, rec.Guest) != key {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	making := 0
	for _, n := range w.making {
		making += n
	}
	if w.countLocked()+making >= w.opts.Cap {
		return false
	}
	if w.kinds[key] == nil {
		w.kinds[key] = kindOf(p)
	}
	one.key, one.driver = key, p.driver
	w.making[key]++
	return true
}

// reviveWarm makes sure of one that an earlier service had ready: its guest gets a new
// identity that nobody knows.
func (s *Service) reviveWarm(one *warm) {
	ctx, cancel := context.WithTimeout(s.ctx, recoverTime)
	defer cancel()
	err := s.greet(ctx, one.box, one.line)
	if err == nil {
		s.warm.sizerSeen(one.key)
		s.shelve(one)
	} else {
		s.discard(one)
	}
	s.warm.made(one.key, 0, err)
	s.warm.wake()
}

// sizerSeen has one count as asked for: an earlier service saw the demand.
func (w *warmPool) sizerSeen(key pool.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sizer.Asked(key, time.Now())
}

// Pool implements carrel.Pools.
func (s *Service) Pool(context.Context) (carrel.PoolStatus, error) {
	w := &s.warm
	w.mu.Lock()
	defer w.mu.Unlock()
	st := carrel.PoolStatus{Cap: w.opts.Cap, Memory: w.advice.String(), Hits: w.hits, Misses: w.misses, Lost: w.lost,
		Problem: w.problem, Kinds: []carrel.PoolKind{}}
	for key, k := range w.kinds {
		pk := carrel.PoolKind{Template: k.template, Tier: k.tier, Limits: k.limits, Golden: k.golden, Ready: len(w.ready[key]),
			Making: w.making[key], Target: w.targets[key], Floor: w.floors[key], Hits: k.hits, Misses: k.misses}
		st.Ready += pk.Ready
		st.Making += pk.Making
		st.Kinds = append(st.Kinds, pk)
	}
	slices.SortFunc(st.Kinds, comparePoolKinds)
	return st, nil
}
