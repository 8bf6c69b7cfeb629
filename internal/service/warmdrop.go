package service

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/pool"
)

// remove takes one out of the pool that has ended by itself, and reports whether it was still there.
// Whoever has taken it out is told.
func (w *warmPool) remove(one *warm) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(w.ready[one.key], one)
	if i < 0 {
		one.dead = true
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

// dropExcess sets the targets and gives up what is over them, and more where memory is
// short or living sandboxes need the place. It is one step: what is asked for meanwhile is
// either in the targets, or nothing of its kind is dropped or forgotten.
func (s *Service) dropExcess(advice pool.Advice, floors map[pool.Key]int) {
	w := &s.warm
	room := s.room()
	w.mu.Lock()
	w.advice, w.floors = advice, floors
	w.targets = w.sizer.Targets(time.Now(), floors)
	out := w.stuck
	w.stuck = nil
	for key, list := range w.ready {
		if n := len(list) - w.targets[key]; n > 0 {
			out = append(out, w.takeOldestLocked(key, n)...)
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
		out = append(out, w.takeOldestLocked(key, n)...)
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

// committed is what the memory limits of those that are ready come to, in MiB.
func (w *warmPool) committed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum := 0
	if w.away != nil {
		sum = memoryOf(w.away.box.rec.Sandbox)
	}
	for _, list := range w.ready {
		for _, one := range list {
			sum += memoryOf(one.box.rec.Sandbox)
		}
	}
	return sum
}

// giveWay gives up as many of those that are ready as so much memory takes, at least one, and
// reports whether there were any.
func (s *Service) giveWay(memoryMB int) bool {
	memoryMB = max(memoryMB, 1)
	w := &s.warm
	var out []*warm
	w.mu.Lock()
	for key, list := range w.ready {
		n := 0
		for ; n < len(list) && memoryMB > 0; n++ {
			memoryMB -= list[n].box.rec.Sandbox.Limits.MemoryMB
		}
		out = append(out, w.takeOldestLocked(key, n)...)
	}
	w.mu.Unlock()
	s.discardAll(out)
	return len(out) > 0
}

// takeOldestLocked takes out the n of a kind that are ready the longest. Called with mu held.
func (w *warmPool) takeOldestLocked(key pool.Key, n int) []*warm {
	list := w.ready[key]
	w.ready[key] = slices.Clone(list[n:])
	return list[:n]
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
