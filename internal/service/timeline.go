package service

import (
	"context"
	"slices"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/service/timeline"
)

// Timeline implements carrel.Moments. It lists the sandbox's own snapshots and all their ancestors,
// and the ancestors of its present state. Ancestors may belong to the sandboxes that it was forked
// from. Missing parents are left out, and circles of parents are cut. So the answer is a forest
// even when the records are damaged.
func (ar *archive) Timeline(ctx context.Context, id carrel.ID) (carrel.Timeline, error) {
	b, err := ar.table.find("read timeline", id)
	if err != nil {
		return carrel.Timeline{}, err
	}
	t := carrel.Timeline{Sandbox: id, Head: b.public().Snapshot, Snapshots: []carrel.Snapshot{}}
	past := ar.snaps.Past(id, t.Head)
	if _, ok := past[t.Head]; !ok {
		t.Head = ""
	}
	timeline.CutLoose(past)
	for _, sn := range past {
		sn = ar.withCost(ctx, sn)
		t.Size += ar.stored(ctx, sn)
		t.Snapshots = append(t.Snapshots, sn)
	}
	slices.SortFunc(t.Snapshots, func(a, b carrel.Snapshot) int { return timeline.PlaceOf(a).Compare(timeline.PlaceOf(b)) })
	t.Forks = ar.forksFrom(id, past)
	return t, nil
}

// stored is the disk space of a snapshot. After packing, it is what the snapshot added. Before
// packing, it is the size of its files.
func (ar *archive) stored(ctx context.Context, sn carrel.Snapshot) int64 {
	if sn.New >= 0 || ar.opts.Snapshots == nil {
		return max(sn.New, 0)
	}
	if st, err := ar.opts.Snapshots.Stat(ctx, sn.ID); err == nil && st.Hot {
		return st.Size
	}
	return 0
}

// forksFrom finds the living sandboxes whose present state came after one of the snapshots. It
// leaves out the sandbox whose timeline this is.
func (ar *archive) forksFrom(id carrel.ID, past map[carrel.SnapshotID]carrel.Snapshot) map[carrel.SnapshotID][]carrel.ID {
	out := map[carrel.SnapshotID][]carrel.ID{}
	set := make(map[carrel.SnapshotID]bool, len(past))
	for sn := range past {
		set[sn] = true
	}
	for _, b := range ar.table.roll.usersOf(set) {
		b.mu.Lock()
		head, st := b.rec.Sandbox.Snapshot, b.rec.Sandbox.State
		b.mu.Unlock()
		if _, ok := past[head]; ok && b.id != id && st != carrel.Stopping {
			out[head] = append(out[head], b.id)
		}
	}
	for _, ids := range out {
		slices.Sort(ids)
	}
	return out
}
