package service

import (
	"context"
	"slices"

	"github.com/carrel-dev/carrel"
)

// Timeline implements carrel.Moments: the sandbox's own snapshots, and those that
// they and its present came after, which may be moments of the sandboxes that it was
// forked from. Parents that are not there any more are left out, and records that
// name each other in a circle are cut open, so that the answer is a forest whatever
// the records say.
func (s *Service) Timeline(ctx context.Context, id carrel.ID) (carrel.Timeline, error) {
	b, err := s.find("read timeline", id)
	if err != nil {
		return carrel.Timeline{}, err
	}
	t := carrel.Timeline{Sandbox: id, Head: b.public().Snapshot, Snapshots: []carrel.Snapshot{}}
	past := s.snaps.past(id, t.Head)
	if _, ok := past[t.Head]; !ok {
		t.Head = ""
	}
	cutLoose(past)
	for _, sn := range past {
		sn = s.withCost(ctx, sn)
		t.Size += s.stored(ctx, sn)
		t.Snapshots = append(t.Snapshots, sn)
	}
	slices.SortFunc(t.Snapshots, func(a, b carrel.Snapshot) int { return momentOf(a).compare(momentOf(b)) })
	t.Forks = s.forksFrom(id, past)
	return t, nil
}

// past collects a sandbox's own snapshots and all that they and its head came after.
func (x *index) past(of carrel.ID, head carrel.SnapshotID) map[carrel.SnapshotID]carrel.Snapshot {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := map[carrel.SnapshotID]carrel.Snapshot{}
	follow := func(id carrel.SnapshotID) {
		for {
			sr, ok := x.byID[id]
			if _, seen := out[id]; seen || !ok {
				return
			}
			out[id] = sr.Snapshot
			id = sr.Snapshot.Parent
		}
	}
	follow(head)
	for id := range x.of[of] {
		follow(id)
	}
	return out
}

// cutLoose takes away parents that are not in the set, and one of each circle.
func cutLoose(set map[carrel.SnapshotID]carrel.Snapshot) {
	const (
		open = 1 // on the way that is walked
		done = 2 // leads to a root
	)
	mark := make(map[carrel.SnapshotID]int, len(set))
	for id := range set {
		var way []carrel.SnapshotID
		for at := id; mark[at] != done; {
			sn := set[at]
			mark[at] = open
			way = append(way, at)
			_, there := set[sn.Parent]
			if !there || mark[sn.Parent] == open {
				sn.Parent = ""
				set[at] = sn
				break
			}
			at = sn.Parent
		}
		for _, at := range way {
			mark[at] = done
		}
	}
}

// stored is what a snapshot takes up: what it added when it was packed, and until
// then its files as they are.
func (s *Service) stored(ctx context.Context, sn carrel.Snapshot) int64 {
	if sn.New >= 0 || s.opts.Snapshots == nil {
		return max(sn.New, 0)
	}
	if st, err := s.opts.Snapshots.Stat(ctx, sn.ID); err == nil && st.Hot {
		return st.Size
	}
	return 0
}

// forksFrom finds the living sandboxes whose present came after one of the moments,
// but for the sandbox whose timeline it is.
func (s *Service) forksFrom(id carrel.ID, past map[carrel.SnapshotID]carrel.Snapshot) map[carrel.SnapshotID][]carrel.ID {
	out := map[carrel.SnapshotID][]carrel.ID{}
	for _, b := range s.snapshot() {
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
