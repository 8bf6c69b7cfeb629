package service

import (
	"context"
	"errors"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/service/timeline"
)

// retainEvery is how often retention rules are looked at without a cause: snapshots grow
// old by themselves, and one that was in use when its sandbox ended stays behind.
const retainEvery = 10 * time.Minute

// prune removes what a sandbox's retention rule does not keep (timeline.Index.Excess), as far
// as nothing needs it. It is called after each new snapshot.
func (ar *archive) prune(id carrel.ID) {
	b := ar.table.boxOf(id)
	if b == nil {
		return
	}
	rule := b.public().Lifecycle.Retention
	if rule == (carrel.Retention{}) {
		rule = ar.opts.Retention
	}
	ar.dropQuietly(ar.table.ctx, ar.snaps.Excess(id, rule, time.Now(), ar.table.roll.isHead), "")
}

// dropQuietly drops snapshots that a rule removes, as far as they are not in use.
func (ar *archive) dropQuietly(ctx context.Context, ids []carrel.SnapshotID, ended carrel.ID) {
	dropped, _, err := ar.dropSnapshots(ctx, ids, dropRule{ended: ended, may: timeline.IsAuto})
	switch {
	case err != nil && ar.table.ctx.Err() == nil:
		ar.log.Error("remove old snapshots", "snapshots", ids, "err", err)
	case len(dropped) > 0:
		ar.log.Debug("removed old snapshots", "snapshots", dropped)
	}
}

// dropOf removes the snapshots of a sandbox that has ended, but for those that are
// Kept, named, labelled or in use. What is in use goes with a later retain.
func (ar *archive) dropOf(ctx context.Context, id carrel.ID) {
	var ids []carrel.SnapshotID
	for _, sn := range ar.snaps.List(id, timeline.IsAuto) {
		ids = append(ids, sn.ID)
	}
	ar.dropQuietly(ctx, ids, id)
}

// retain applies the rules to all snapshots there are. A sandbox that is not in the
// table has ended only when there is no record of it either: one that this service
// could not adopt is left alone.
func (ar *archive) retain() {
	for _, id := range ar.snaps.Owners() {
		if ar.table.ctx.Err() != nil {
			return
		}
		if ar.table.boxOf(id) != nil {
			ar.prune(id)
		} else if _, err := ar.opts.Store.GetSandbox(ar.table.ctx, id); errors.Is(err, carrel.NotFound) {
			ar.dropOf(ar.table.ctx, id)
		}
	}
}
