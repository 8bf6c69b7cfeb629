package service

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/admission"
	"github.com/carrel-dev/carrel/internal/pool"
)

const (
	opWarm = "keep sandboxes ready"
	// calmTime is how long nothing must have been created before one is made: who has just got
	// a sandbox is about to use it. yieldTime bounds the wait, for where there is always
	// a creation the pool is needed most.
	calmTime  = 300 * time.Millisecond
	yieldTime = time.Second
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
		s.freshen()
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
	s.dropExcess(advice, floors)
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

// yield waits until no creation is under way or has just ended, for a moment.
func (s *Service) yield() {
	w := &s.warm
	for over := time.Now().Add(yieldTime); ; {
		select { // a token of before
		case <-w.quiet:
		default:
		}
		wait := time.Until(over)
		if w.busy.Load() == 0 {
			wait = min(wait, calmTime-time.Since(time.Unix(0, w.ended.Load())))
		}
		if wait <= 0 {
			return
		}
		select {
		case <-w.quiet:
		case <-time.After(wait):
		case <-s.ctx.Done():
			return
		}
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
	if w.away != nil {
		n++
	}
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
	if errors.Is(err, admission.ErrBusy) {
		return // thought over again at once: others may be missing by now
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
