package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/failpoint"
	"github.com/carrel-dev/carrel/internal/service/timeline"
	"github.com/carrel-dev/carrel/internal/snapshot"
	"github.com/carrel-dev/carrel/internal/state"
)

// archive keeps snapshots, shows them, and removes them.
type archive struct {
	opts     *Options
	log      *slog.Logger
	table    *table
	snaps    *timeline.Index
	journal  *journal
	records  *records
	launcher *launcher
	resolver *resolver
	lost     *lostAndFound
	builds   *builds
}

// loadIndex reads the records. It removes contents that have a tombstone: their deletion was asked
// for, or a service died before it wrote their record. It keeps all other contents without a
// record, because records can be lost.
func (ar *archive) loadIndex(ctx context.Context) error {
	if ar.opts.Snapshots == nil {
		return nil
	}
	all, err := ar.opts.Store.Snapshots(ctx)
	if err != nil {
		return &carrel.Error{Op: opRecover, Kind: carrel.KindOf(err), Err: err}
	}
	ar.snaps.Put(all...)
	ids, err := ar.opts.Snapshots.List(ctx)
	if err != nil {
		return &carrel.Error{Op: opRecover, Kind: carrel.KindOf(err), Err: err}
	}
	dead, err := ar.opts.Store.Tombstones(ctx)
	if err != nil {
		return &carrel.Error{Op: opRecover, Kind: carrel.KindOf(err), Err: err}
	}
	there := make(map[carrel.SnapshotID]bool, len(ids))
	for _, id := range ids {
		there[id] = true
		if _, ok := ar.snaps.Get(id); ok {
			continue
		}
		gone := slices.Contains(dead.Snapshots, id) && !failpoint.Mutant("tombstones") ||
			failpoint.Mutant("unrecorded-snapshots")
		if !gone {
			ar.lost.addSnapshot(ctx, id)
		} else if err := ar.opts.Snapshots.Delete(ctx, id); err != nil {
			ar.log.Error("remove the content of a deleted snapshot", "snapshot", id, "err", err)
		}
	}
	for _, sr := range all {
		if !there[sr.Snapshot.ID] {
			ar.log.Error("the content of a snapshot is not where it was", "snapshot", sr.Snapshot.ID, "sandbox", sr.Snapshot.Sandbox)
		}
	}
	return nil
}

// findSnapshot finds a snapshot by ID, or by its name in the caller's project.
func (ar *archive) findSnapshot(ctx context.Context, op, idOrName string) (state.SnapshotRecord, error) {
	ref, err := carrel.ParseTemplateRef(idOrName)
	sr, ok := ar.resolver.snapshot(ctx, ref)
	if err != nil || !ok {
		return state.SnapshotRecord{}, &carrel.Error{Op: op, Kind: carrel.NotFound, Field: "snapshotID",
			Err: fmt.Errorf("no snapshot %s", clip(idOrName)), Hint: "see carrel snapshot ls"}
	}
	return sr, nil
}

// keep has the driver write the present moment of a sandbox, and makes it durable. No record names
// it yet. The caller holds box.turn. If the memory can't be saved because of the sandbox's build,
// keep may save the files only.
func (ar *archive) keep(ctx context.Context, b *box, w wish) (state.SnapshotRecord, error) {
	b.mu.Lock()
	inst := b.inst
	b.mu.Unlock()
	snapper, ok := driver.As[driver.Snapshotter](inst)
	switch {
	case ar.opts.Snapshots == nil:
		return state.SnapshotRecord{}, &carrel.Error{Kind: carrel.Unsupported, Err: errNoSnapshots}
	case !ok:
		return state.SnapshotRecord{}, &carrel.Error{Kind: carrel.Unsupported,
			Err: fmt.Errorf("sandboxes of tier %s have no snapshots", b.public().Tier)}
	}
	if err := ar.launcher.roots.isWhole(b.record()); err != nil {
		return state.SnapshotRecord{}, err
	}
	if err := ar.builds.fit(ctx, inst, &w); err != nil {
		return state.SnapshotRecord{}, err
	}
	id := carrel.NewSnapshotID()
	draft, err := ar.opts.Snapshots.Begin(ctx, id)
	if err != nil {
		return state.SnapshotRecord{}, err
	}
	defer func() { _ = draft.Discard() }() // does nothing after a commit
	if err := draft.Reserve(ar.sizeToKeep(ctx, inst, b.public().Tier, w.filesOnly)); err != nil {
		return state.SnapshotRecord{}, err
	}
	// A service that dies between the content and its record must not leave the content for ever.
	// This write takes its time beside the driver's work.
	buried := make(chan error, 1)
	go func() { buried <- ar.opts.Store.Apply(ctx, state.Change{Bury: []carrel.SnapshotID{id}}) }()
	stop := draft.WriteBack()
	info, err := snapper.Snapshot(ctx, draft.Dir(), driver.SnapshotOptions{FilesOnly: w.filesOnly})
	stop()
	if berr := <-buried; err == nil {
		err = berr
	}
	if err == nil {
		err = failpoint.Hit(pointTaken)
	}
	if err != nil {
		return state.SnapshotRecord{}, err
	}
	sr := ar.describe(b.record(), id, info, w)
	meta, err := json.Marshal(sr)
	if err != nil {
		return state.SnapshotRecord{}, err
	}
	m, err := draft.Commit(ctx, snapshot.Manifest{Version: snapshot.ManifestVersion, ID: id,
		Created: sr.Snapshot.Created, Info: info, Line: string(b.id), Meta: meta})
	if err != nil {
		ar.scrap(id) // it may exist all the same
		return state.SnapshotRecord{}, err
	}
	sr.Snapshot.Size = m.Size
	if drv, err := ar.opts.Drivers.Get(sr.Snapshot.Tier); err == nil {
		ar.builds.shareLater(drv, info)
	}
	if err := failpoint.Hit(pointCommitted); err != nil {
		ar.scrap(id)
		return state.SnapshotRecord{}, err
	}
	return sr, nil
}

// sizeToKeep estimates how many bytes a driver writes for a snapshot. A sandbox that can't be
// measured counts as empty: the driver then meets the full disk itself.
func (ar *archive) sizeToKeep(ctx context.Context, inst driver.Instance, tier carrel.Tier,
	filesOnly bool) int64 {
	st, err := inst.Stats(ctx)
	if err != nil {
		return 0
	}
	size := st.Disk
	if d, err := ar.opts.Drivers.Get(tier); err == nil && d.Info().Capabilities.MemorySnapshot {
		size += max(0, st.Memory-st.MemoryCache)
		if filesOnly { // the memory is written, too, and read from there
			size += st.Disk
		}
	}
	return size
}

// describe builds the record of a snapshot.
func (ar *archive) describe(rec state.Record, id carrel.SnapshotID, info driver.SnapshotInfo, w wish) state.SnapshotRecord {
	sb := rec.Sandbox
	sn := carrel.Snapshot{
		ID: id, Sandbox: sb.ID, Project: sb.Project, Parent: sb.Snapshot, Created: time.Now().UTC().Round(0), Cause: w.cause,
		Label: w.label, Detail: w.detail, Memory: info.Memory, Kept: w.cause == carrel.CauseRequest || w.cause == carrel.CauseGuest,
		Tier: sb.Tier, Template: sb.Template, Alias: sb.Alias, Limits: sb.Limits, New: -1,
	}
	if w.name != "" {
		sn.Names = []string{w.name}
	}
	rec.Handle, rec.Wake, rec.Paused, rec.Sound = nil, false, "", false
	return state.SnapshotRecord{Snapshot: sn, Record: rec, Build: info.Build}
}

// scrap removes the content of a snapshot that has no record. If that fails, the service tries
// again later, and the next service removes the rest.
func (ar *archive) scrap(id carrel.SnapshotID) {
	if ar.tryScrap(id) {
		return
	}
	ar.table.spawn(func() {
		for sleep(ar.table.ctx, scrapAgain) && !ar.tryScrap(id) {
		}
	})
}

// tryScrap reports whether the content was removed.
func (ar *archive) tryScrap(id carrel.SnapshotID) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ar.table.ctx), undoTime)
	defer cancel()
	if err := ar.opts.Snapshots.Delete(ctx, id); err != nil {
		ar.log.Error("remove the content of a snapshot", "snapshot", id, "err", err)
		return false
	}
	return true
}

// renamed returns the records that lose a name because sr takes it.
func (ar *archive) renamed(sr state.SnapshotRecord) []state.SnapshotRecord {
	var out []state.SnapshotRecord
	for _, name := range sr.Snapshot.Names {
		had, ok := ar.snaps.Holder(sr.Snapshot.Project, name)
		if !ok || had.Snapshot.ID == sr.Snapshot.ID {
			continue
		}
		had.Snapshot.Names = slices.DeleteFunc(slices.Clone(had.Snapshot.Names), func(n string) bool { return n == name })
		out = append(out, had)
	}
	return out
}

// open opens a snapshot's content. A foreign snapshot belongs to another machine and is not in the
// index.
func (ar *archive) open(ctx context.Context, id carrel.SnapshotID, filesOnly, foreign bool) (*origin, error) {
	if ar.opts.Snapshots == nil {
		return nil, &carrel.Error{Kind: carrel.Unsupported, Err: errNoSnapshots}
	}
	drop, ok := ar.snaps.Hold(id)
	switch {
	case ok:
	case foreign:
		drop = func() {}
	default:
		return nil, &carrel.Error{Kind: carrel.NotFound, Field: "snapshotID", Err: fmt.Errorf("snapshot %s is gone", id)}
	}
	files, err := ar.opts.Snapshots.Open(ctx, id)
	if err != nil {
		drop()
		return nil, err
	}
	o := &origin{id: id, files: files, info: files.Manifest().Info, filesOnly: filesOnly, verify: files.Verify,
		users: &users{close: func() { _ = files.Close(); drop() }}, once: &sync.Once{}}
	o.users.n.Store(1)
	return o, nil
}

// errNoSnapshots is the error of a service that keeps no snapshots.
var errNoSnapshots = errors.New("this service keeps no snapshots")
