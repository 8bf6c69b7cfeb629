package service

import (
	"cmp"
	"context"
	"slices"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
)

var _ carrel.Pools = (*Service)(nil)

// comparePoolKinds orders kinds by template, then by size.
func comparePoolKinds(a, b carrel.PoolKind) int {
	return cmp.Or(cmp.Compare(a.Template, b.Template), cmp.Compare(a.Tier, b.Tier),
		cmp.Compare(a.Limits.CPUs, b.Limits.CPUs), cmp.Compare(a.Limits.MemoryMB, b.Limits.MemoryMB),
		cmp.Compare(a.Limits.DiskMB, b.Limits.DiskMB), cmp.Compare(a.Limits.Pids, b.Limits.Pids))
}

// Pool implements carrel.Pools.
func (s *Service) Pool(context.Context) (carrel.PoolStatus, error) {
	w := &s.warm
	gate := s.gate.State()
	w.mu.Lock()
	defer w.mu.Unlock()
	st := carrel.PoolStatus{Cap: w.opts.Cap, Memory: w.advice.String(), Hits: w.hits, Misses: w.misses, Lost: w.lost,
		Problem: w.problem, Kinds: []carrel.PoolKind{},
		Gate: carrel.Gate{Limit: gate.Limit, Starting: gate.Starting, Waiting: gate.Wakes + gate.Creates, Refused: gate.Refused}}
	for key, k := range w.kinds {
		pk := carrel.PoolKind{Template: k.template, Tier: k.tier, Limits: k.limits, Golden: k.golden, Ready: len(w.ready[key]),
			Making: w.making[key], Target: w.targets[key], Floor: w.floors[key], Hits: k.hits, Misses: k.misses}
		if w.away != nil && w.away.key == key {
			pk.Ready++
		}
		st.Ready += pk.Ready
		st.Making += pk.Making
		st.Kinds = append(st.Kinds, pk)
	}
	slices.SortFunc(st.Kinds, comparePoolKinds)
	for _, d := range s.opts.Drivers.All() {
		if b, ok := driver.As[driver.Blanker](d); ok {
			if n := b.Blanks(); n.Keep > 0 {
				st.Blanks = &n
			}
		}
	}
	return st, nil
}
