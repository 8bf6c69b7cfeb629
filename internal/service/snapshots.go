package service

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/service/timeline"
	"github.com/carrel-dev/carrel/internal/state"
)

// GetSnapshot implements carrel.Moments.
func (ar *archive) GetSnapshot(ctx context.Context, idOrName string) (carrel.Snapshot, error) {
	sr, err := ar.findSnapshot(ctx, "get snapshot", idOrName)
	if err != nil {
		return carrel.Snapshot{}, err
	}
	return ar.withCost(ctx, sr.Snapshot), nil
}

// withCost returns the caller's own copy of a snapshot, with its cost as far as it is known by now.
func (ar *archive) withCost(ctx context.Context, sn carrel.Snapshot) carrel.Snapshot {
	sn.Names = slices.Clone(sn.Names)
	sn.New = -1
	if ar.opts.Snapshots == nil {
		return sn
	}
	if st, err := ar.opts.Snapshots.Stat(ctx, sn.ID); err == nil {
		sn.New = st.New
		if st.Away != nil {
			sn.Unavailable = st.Away.Error()
		}
	}
	return sn
}

const opListSnapshots = "list snapshots"

// ListSnapshots implements carrel.Moments. Paging is stable: snapshots that come or go between two
// pages do not shift the others.
func (ar *archive) ListSnapshots(ctx context.Context, o carrel.SnapshotListOptions) (carrel.SnapshotPage, error) {
	if o.Limit < 0 || o.Limit > maxPage {
		return carrel.SnapshotPage{}, invalid(opListSnapshots, "limit", "%d is not between 1 and %d", o.Limit, maxPage)
	}
	if o.Limit == 0 {
		o.Limit = maxPage
	}
	if o.Sandbox != "" {
		if _, err := carrel.ParseID(string(o.Sandbox)); err != nil {
			return carrel.SnapshotPage{}, invalid(opListSnapshots, "sandboxID", "%s is not a sandbox ID", clip(string(o.Sandbox)))
		}
	}
	last := timeline.Place{}
	if o.Cursor != "" {
		var ok bool
		if last, ok = timeline.ParsePlace(o.Cursor); !ok {
			return carrel.SnapshotPage{}, invalid(opListSnapshots, "nextToken", "%s is not a token of this list", clip(o.Cursor))
		}
	}
	all := ar.snaps.List(o.Sandbox, func(sn carrel.Snapshot) bool {
		return (o.Project == "" || sn.Project == o.Project) && (o.Auto || timeline.AskedFor(sn)) && timeline.IsCalled(sn, o.Name) && (o.Cursor == "" || timeline.PlaceOf(sn).Compare(last) < 0)
	})
	slices.SortFunc(all, func(a, b carrel.Snapshot) int { return timeline.PlaceOf(b).Compare(timeline.PlaceOf(a)) })
	var page carrel.SnapshotPage
	if len(all) > o.Limit {
		all = all[:o.Limit]
		page.Next = timeline.PlaceOf(all[o.Limit-1]).Cursor()
	}
	for i := range all {
		all[i] = ar.withCost(ctx, all[i])
	}
	page.Snapshots = all
	return page, nil
}

// UpdateSnapshot implements carrel.Moments.
func (ar *archive) UpdateSnapshot(ctx context.Context, id carrel.SnapshotID, u carrel.SnapshotUpdate) (carrel.Snapshot, error) {
	const op = "update snapshot"
	if u.Names != nil {
		if err := checkNames(op, *u.Names); err != nil {
			return carrel.Snapshot{}, err
		}
	}
	if u.Label != nil {
		if err := checkLabel(op, *u.Label); err != nil {
			return carrel.Snapshot{}, err
		}
	}
	defer ar.snaps.LockEdits()()
	sr, ok := ar.snaps.Get(id)
	if !ok || timeline.Hidden(sr.Snapshot) {
		_, err := ar.findSnapshot(ctx, op, string(id))
		if err == nil { // it is a name; this method accepts only IDs
			err = &carrel.Error{Op: op, Kind: carrel.NotFound, Field: "snapshotID", Err: fmt.Errorf("no snapshot has the ID %s", clip(string(id)))}
		}
		return carrel.Snapshot{}, err
	}
	if u.Names != nil {
		if err := ar.nameTaken(op, sr.Snapshot, *u.Names); err != nil {
			return carrel.Snapshot{}, err
		}
		sr.Snapshot.Names = slices.Clone(*u.Names)
	}
	if u.Label != nil {
		sr.Snapshot.Label = *u.Label
	}
	if u.Kept != nil {
		sr.Snapshot.Kept = *u.Kept
	}
	if err := ar.records.apply(ctx, state.Change{PutSnapshots: []state.SnapshotRecord{sr}}); err != nil {
		return carrel.Snapshot{}, &carrel.Error{Op: op, Kind: carrel.KindOf(err), Err: err, Hint: carrel.HintOf(err)}
	}
	return ar.withCost(ctx, sr.Snapshot), nil
}

// checkNames checks all names for one snapshot.
func checkNames(op string, names []string) error {
	if len(names) > maxNames {
		return invalid(op, "names", "%d names, at most %d may be", len(names), maxNames)
	}
	for i, n := range names {
		if n == "" {
			return invalid(op, "names", "a name is empty")
		}
		if err := checkSnapshotName(op, n); err != nil {
			return err
		}
		if slices.ContainsFunc(names[:i], func(o string) bool { return timeline.SameName(o, n) }) {
			return invalid(op, "names", "%s is given twice", clip(n))
		}
	}
	return nil
}

// nameTaken returns an error when another snapshot of the project has one of the names.
func (ar *archive) nameTaken(op string, sn carrel.Snapshot, names []string) error {
	for _, n := range names {
		bare := strings.TrimSuffix(n, timeline.DefaultTag)
		for _, form := range []string{n, bare, bare + timeline.DefaultTag} {
			had, ok := ar.snaps.Holder(sn.Project, form)
			if ok && had.Snapshot.ID != sn.ID {
				return &carrel.Error{Op: op, Kind: carrel.AlreadyExists, Field: "names",
					Err:  fmt.Errorf("%s is the name of snapshot %s already", clip(n), had.Snapshot.ID),
					Hint: "take it away from that one first"}
			}
		}
	}
	return nil
}
