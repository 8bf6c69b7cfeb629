package service

import (
	"context"
	"errors"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/service/timeline"
)

// retainEvery is the time between two checks of the retention rules without a special cause.
// Snapshots grow old without any event, and a snapshot that was in use when its sandbox ended is
// left for such a check.
const retainEvery = 10 * time.Minute

// prune removes the snapshots of a sandbox that its retention rule does not keep
// (timeline.Index.Excess). Snapshots that are needed stay. It is called after each new snapshot.
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

// dropQuietly removes snapshots on behalf of a rule. Those in use stay.
func (ar *archive) dropQuietly(ctx context.Context, ids []carrel.SnapshotID, ended carrel.ID) {
	dropped, _, err := ar.dropSnapshots(ctx, ids, dropRule{ended: ended, may: timeline.IsAuto})
	switch {
	case err != nil && ar.table.ctx.Err() == nil:
		ar.log.Error("remove old snapshots", "snapshots", ids, "err", err)
	case len(dropped) > 0:
		ar.log.Debug("removed old snapshots", "snapshots", dropped)
	}
}

// dropOf removes the snapshots of an ended sandbox, except those that are Kept, named, labelled or
// in use. A later retain removes the ones in use.
func (ar *archive) dropOf(ctx context.Context, id carrel.ID) {
	var ids []carrel.SnapshotID
	for _, sn := range ar.snaps.List(id, timeline.IsAuto) {
		ids = append(ids, sn.ID)
	}
	ar.dropQuietly(ctx, ids, id)
}

// retain applies the rules to all snapshots. A sandbox outside the table counts as ended only if it
// has no record either. A record without a place in the table belongs to a sandbox that this
// service could not adopt, and its snapshots stay.
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
