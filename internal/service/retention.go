package service

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/carrel-dev/carrel"
)

// What a retention rule is by default, and how often it is looked at without a
// cause: snapshots grow old by themselves, and one that was in use when its sandbox
// ended stays behind.
const (
	defaultLast = 20
	retainEvery = 10 * time.Minute
)

// prune removes what a sandbox's retention rule does not keep. It is called after
// each new snapshot.
//
// The rule governs snapshots that nobody asked for: not Kept, named or labelled. Of
// those the Last newest stay, and all younger than For. Whatever the rule says, what
// a paused sandbox needs stays, what an operation uses, and the present moment (the
// head) of any living sandbox, which is what it can be rolled back to at once.
//
// Pauses are not counted among the Last. The moment of one matters until the sandbox
// runs on, and its next pause keeps a newer one; a sandbox that is paused whenever
// it is idle would otherwise push every checkpoint out. So of the snapshots that
// pauses took (on request, at a timeout, on idleness) the newest stays, and an older
// one only where the timeline branches: where more hangs on it than what came next.
func (s *Service) prune(id carrel.ID) {
	b := s.boxOf(id)
	if b == nil {
		return
	}
	rule := b.public().Lifecycle.Retention
	if rule == (carrel.Retention{}) {
		rule = s.opts.Retention
	}
	s.dropQuietly(s.ctx, s.excess(id, rule, time.Now()), "")
}

// heads counts the living sandboxes by the moment that their present came after.
func (s *Service) heads() map[carrel.SnapshotID]int {
	out := map[carrel.SnapshotID]int{}
	for _, b := range s.snapshot() {
		b.mu.Lock()
		if h := b.rec.Sandbox.Snapshot; h != "" {
			out[h]++
		}
		b.mu.Unlock()
	}
	return out
}

// excess lists what a rule does not keep of a sandbox's snapshots.
func (s *Service) excess(id carrel.ID, rule carrel.Retention, now time.Time) []carrel.SnapshotID {
	last := rule.Last
	if last == 0 {
		last = defaultLast
	}
	governed := s.snaps.public(id, isAuto)
	slices.SortFunc(governed, func(a, b carrel.Snapshot) int { return momentOf(b).compare(momentOf(a)) })
	var pauses, over []carrel.Snapshot // newest first
	rest := 0
	for _, sn := range governed {
		young := rule.For > 0 && now.Sub(sn.Created) < rule.For
		if isPause(sn) {
			if len(pauses) > 0 && !young {
				over = append(over, sn)
			}
			pauses = append(pauses, sn)
			continue
		}
		if rest++; rest > last && !young {
			over = append(over, sn)
		}
	}
	if len(over) == 0 {
		return nil
	}
	heads, kids := s.heads(), s.snaps.children(over)
	var ids []carrel.SnapshotID
	for _, sn := range over {
		if heads[sn.ID] == 0 && (!isPause(sn) || kids[sn.ID] <= 1) {
			ids = append(ids, sn.ID)
		}
	}
	return ids
}

// isAuto reports whether the service may remove a snapshot by itself.
func isAuto(sn carrel.Snapshot) bool {
	return !sn.Kept && len(sn.Names) == 0 && sn.Label == ""
}

// isPause reports whether a snapshot was taken to pause its sandbox.
func isPause(sn carrel.Snapshot) bool {
	return sn.Cause == carrel.CausePause || sn.Cause == carrel.CauseTimeout || sn.Cause == carrel.CauseIdle
}

// children counts the snapshots that came right after each.
func (x *index) children(of []carrel.Snapshot) map[carrel.SnapshotID]int {
	out := make(map[carrel.SnapshotID]int, len(of))
	for _, sn := range of {
		out[sn.ID] = 0
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for id := range x.byID {
		parent := x.byID[id].Snapshot.Parent
		if _, ok := out[parent]; ok {
			out[parent]++
		}
	}
	return out
}

// dropQuietly drops snapshots that a rule removes, as far as they are not in use.
func (s *Service) dropQuietly(ctx context.Context, ids []carrel.SnapshotID, ended carrel.ID) {
	dropped, _, err := s.dropSnapshots(ctx, ids, dropRule{ended: ended, may: isAuto})
	switch {
	case err != nil && s.ctx.Err() == nil:
		s.log.Error("remove old snapshots", "snapshots", ids, "err", err)
	case len(dropped) > 0:
		s.log.Debug("removed old snapshots", "snapshots", dropped)
	}
}

// dropOf removes the snapshots of a sandbox that has ended, but for those that are
// Kept, named, labelled or in use. What is in use goes with a later retain.
func (s *Service) dropOf(ctx context.Context, id carrel.ID) {
	var ids []carrel.SnapshotID
	for _, sn := range s.snaps.public(id, isAuto) {
		ids = append(ids, sn.ID)
	}
	s.dropQuietly(ctx, ids, id)
}

// retain applies the rules to all snapshots there are. A sandbox that is not in the
// table has ended only when there is no record of it either: one that this service
// could not adopt is left alone.
func (s *Service) retain() {
	for _, id := range s.snaps.owners() {
		if s.ctx.Err() != nil {
			return
		}
		if s.boxOf(id) != nil {
			s.prune(id)
		} else if _, err := s.opts.Store.GetSandbox(s.ctx, id); errors.Is(err, carrel.NotFound) {
			s.dropOf(s.ctx, id)
		}
	}
}

// owners lists the sandboxes that have snapshots.
func (x *index) owners() []carrel.ID {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make([]carrel.ID, 0, len(x.of))
	for id := range x.of {
		out = append(out, id)
	}
	return out
}
