package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/failpoint"
	"github.com/carrel-dev/carrel/internal/snapshot"
	"github.com/carrel-dev/carrel/internal/state"
)

// The steps of what is done with time at which a test lets the service die or the
// disk be full (package failpoint), in their order.
const (
	pointFrozen    = "service.pause.frozen"     // nothing is written yet
	pointTaken     = "service.moment.taken"     // the driver has written its files
	pointCommitted = "service.moment.committed" // the snapshot exists, no record names it
	pointRecorded  = "service.pause.recorded"   // the sandbox is paused, its instance still there
	pointDestroyed = "service.pause.destroyed"  // and gone
	pointSnapped   = "service.snapshot.recorded"
	pointOpened    = "service.resume.opened"   // nothing is started yet
	pointRestored  = "service.resume.restored" // an instance runs, no record names it
	pointGreeted   = "service.resume.greeted"  // and has its identity
	pointResumed   = "service.resume.recorded"
	pointTurned    = "service.rollback.recorded" // paused at the target, the old instance still there
	pointForked    = "service.fork.taken"
	pointDropped   = "service.drop.recorded" // a snapshot has no record, but content
)

// FailPoints lists the steps at which tests let the service die, in package
// failpoint's names.
func FailPoints() []string {
	return []string{pointFrozen, pointTaken, pointCommitted, pointRecorded, pointDestroyed, pointSnapped,
		pointOpened, pointRestored, pointGreeted, pointResumed, pointTurned, pointForked, pointDropped}
}

// wish says what moment to keep and why.
type wish struct {
	cause               carrel.Cause
	filesOnly           bool
	name, label, detail string
}

// keep has the present moment of a sandbox written and made durable; no record
// names it yet. The caller has the turn.
func (s *Service) keep(ctx context.Context, b *box, w wish) (state.SnapshotRecord, error) {
	b.mu.Lock()
	inst := b.inst
	b.mu.Unlock()
	snapper, ok := driver.As[driver.Snapshotter](inst)
	switch {
	case s.opts.Snapshots == nil:
		return state.SnapshotRecord{}, &carrel.Error{Kind: carrel.Unsupported, Err: errNoSnapshots}
	case !ok:
		return state.SnapshotRecord{}, &carrel.Error{Kind: carrel.Unsupported,
			Err: fmt.Errorf("sandboxes of tier %s have no snapshots", b.public().Tier)}
	}
	id := carrel.NewSnapshotID()
	draft, err := s.opts.Snapshots.Begin(ctx, id)
	if err != nil {
		return state.SnapshotRecord{}, err
	}
	defer func() { _ = draft.Discard() }() // nothing, when it was committed
	stop := draft.WriteBack()
	info, err := snapper.Snapshot(ctx, draft.Dir(), driver.SnapshotOptions{FilesOnly: w.filesOnly})
	stop()
	if err == nil {
		err = failpoint.Hit(pointTaken)
	}
	if err != nil {
		return state.SnapshotRecord{}, err
	}
	sr := s.describe(b.record(), id, info, w)
	meta, err := json.Marshal(sr)
	if err != nil {
		return state.SnapshotRecord{}, err
	}
	m, err := draft.Commit(ctx, snapshot.Manifest{Version: snapshot.ManifestVersion, ID: id,
		Created: sr.Snapshot.Created, Info: info, Line: string(b.id), Meta: meta})
	if err != nil {
		s.scrap(id) // it may exist all the same
		return state.SnapshotRecord{}, err
	}
	sr.Snapshot.Size = m.Size
	if err := failpoint.Hit(pointCommitted); err != nil {
		s.scrap(id)
		return state.SnapshotRecord{}, err
	}
	return sr, nil
}

// describe is the record of a moment.
func (s *Service) describe(rec state.Record, id carrel.SnapshotID, info driver.SnapshotInfo, w wish) state.SnapshotRecord {
	sb := rec.Sandbox
	sn := carrel.Snapshot{
		ID: id, Sandbox: sb.ID, Parent: sb.Snapshot, Created: time.Now().UTC().Round(0), Cause: w.cause,
		Label: w.label, Detail: w.detail, Memory: info.Memory, Kept: w.cause == carrel.CauseRequest || w.cause == carrel.CauseGuest,
		Tier: sb.Tier, Template: sb.Template, Alias: sb.Alias, Limits: sb.Limits, New: -1,
	}
	if w.name != "" {
		sn.Names = []string{w.name}
	}
	rec.Handle, rec.Wake, rec.Paused, rec.Sound = nil, false, "", false
	return state.SnapshotRecord{Snapshot: sn, Record: rec}
}

// scrapAgain is how long after a removal that failed the next try comes.
const scrapAgain = 3 * time.Second

// scrap removes the content of a snapshot that has no record. What can't be removed
// now is tried again, by the next service at the latest.
func (s *Service) scrap(id carrel.SnapshotID) {
	if s.tryScrap(id) {
		return
	}
	s.spawn(func() {
		for sleep(s.ctx, scrapAgain) && !s.tryScrap(id) {
		}
	})
}

// tryScrap reports whether it worked.
func (s *Service) tryScrap(id carrel.SnapshotID) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), undoTime)
	defer cancel()
	if err := s.opts.Snapshots.Delete(ctx, id); err != nil {
		s.log.Error("remove the content of a snapshot", "snapshot", id, "err", err)
		return false
	}
	return true
}

// renamed returns the records that lose a name because sr takes it.
func (s *Service) renamed(sr state.SnapshotRecord) []state.SnapshotRecord {
	var out []state.SnapshotRecord
	for _, name := range sr.Snapshot.Names {
		had, ok := s.snaps.named(name)
		if !ok || had.Snapshot.ID == sr.Snapshot.ID || !slices.Contains(had.Snapshot.Names, name) {
			continue
		}
		had.Snapshot.Names = slices.DeleteFunc(slices.Clone(had.Snapshot.Names), func(n string) bool { return n == name })
		out = append(out, had)
	}
	return out
}

// Snapshot implements carrel.Moments. The snapshot of a paused sandbox is the one
// that it will resume from.
func (s *Service) Snapshot(ctx context.Context, id carrel.ID, o carrel.SnapshotOptions) (carrel.Snapshot, error) {
	const op = "take snapshot"
	if err := first(checkSnapshotName(op, o.Name), checkLabel(op, o.Label)); err != nil {
		return carrel.Snapshot{}, err
	}
	if o.Cause == "" {
		o.Cause = carrel.CauseRequest
	}
	b, err := s.find(op, id)
	if err != nil {
		return carrel.Snapshot{}, err
	}
	if b.public().State == carrel.Starting {
		return carrel.Snapshot{}, b.running(op)
	}
	ctx, release, err := s.take(ctx, op, b)
	if err != nil {
		return carrel.Snapshot{}, err
	}
	defer release()
	if o.Cause == carrel.CauseCommand { // the guest asks, and does not know
		o.FilesOnly = b.public().Lifecycle.Checkpoints.FilesOnly
	}
	w := wish{cause: o.Cause, filesOnly: o.FilesOnly, name: o.Name, label: o.Label, detail: o.Detail}
	var sr state.SnapshotRecord
	if b.public().State == carrel.Paused {
		sr, err = s.promote(ctx, b, w)
	} else {
		sr, err = s.snap(ctx, b, w)
	}
	if err != nil {
		return carrel.Snapshot{}, b.momentError(ctx, op, err)
	}
	return s.withCost(ctx, sr.Snapshot), nil
}

// snap keeps the present moment of a running sandbox and makes it its newest.
func (s *Service) snap(ctx context.Context, b *box, w wish) (state.SnapshotRecord, error) {
	if err := b.running(""); err != nil {
		return state.SnapshotRecord{}, err
	}
	s.settle(ctx, b, leaveTime)
	sr, err := s.keep(ctx, b, w)
	if err != nil {
		return sr, err
	}
	b.save.Lock()
	defer b.save.Unlock()
	rec := b.record()
	sr.Snapshot.Parent = rec.Sandbox.Snapshot // the one before may have been dropped meanwhile
	rec.Sandbox.Snapshot = sr.Snapshot.ID
	s.snaps.edit.Lock()
	if err = b.running(""); err == nil {
		err = s.apply(ctx, state.Change{Put: []state.Record{rec}, PutSnapshots: append(s.renamed(sr), sr)})
	}
	s.snaps.edit.Unlock()
	if err != nil {
		s.scrap(sr.Snapshot.ID)
		return sr, err
	}
	b.mu.Lock()
	b.rec.Sandbox.Snapshot = sr.Snapshot.ID
	b.mu.Unlock()
	_ = failpoint.Hit(pointSnapped)
	s.tell(snapshotEvent(sr.Snapshot))
	s.spawn(func() { s.prune(b.id) })
	return sr, nil
}

// settleTime is how long a creation waits for its guest to settle: hooks may take their time.
const settleTime = 10 * time.Second

// settle lets a guest finish what it writes after it got its identity, and the hooks that it
// then runs, so that no snapshot holds half of that. It waits no longer than most.
func (s *Service) settle(ctx context.Context, b *box, most time.Duration) {
	conn := b.guest()
	if conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	if _, err := conn.GuestMetrics(ctx); err != nil { // that route waits for it, unlike /health and the activity's
		s.log.Debug("settle", "sandbox", b.id, "err", err)
	}
}

// promote makes the snapshot that a paused sandbox will resume from one that was
// asked for.
func (s *Service) promote(ctx context.Context, b *box, w wish) (state.SnapshotRecord, error) {
	s.snaps.edit.Lock()
	defer s.snaps.edit.Unlock()
	sr, ok := s.snaps.get(b.record().Paused)
	if !ok {
		return sr, &carrel.Error{Kind: carrel.NotFound, Err: errors.New("the snapshot of the paused sandbox is lost")}
	}
	sr.Snapshot.Kept = true
	if w.name != "" && !slices.Contains(sr.Snapshot.Names, w.name) {
		sr.Snapshot.Names = append(slices.Clone(sr.Snapshot.Names), w.name)
	}
	if w.label != "" {
		sr.Snapshot.Label = w.label
	}
	if err := s.apply(ctx, state.Change{PutSnapshots: append(s.renamed(sr), sr)}); err != nil {
		return sr, err
	}
	s.tell(snapshotEvent(sr.Snapshot))
	return sr, nil
}

// snapshotEvent tells that a moment was kept.
func snapshotEvent(sn carrel.Snapshot) carrel.Event {
	what := "files"
	if sn.Memory {
		what = "memory, processes and files"
	}
	return carrel.Event{Type: eventSnapshot, ID: sn.Sandbox, Time: sn.Created,
		Message: fmt.Sprintf("snapshot %s of its %s was taken (%s)", sn.ID, what, sn.Cause),
		Fields:  map[string]string{"snapshot": string(sn.ID), "cause": string(sn.Cause), "label": sn.Label}}
}

// tell writes an event that nothing depends on.
func (s *Service) tell(e carrel.Event) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), undoTime)
	defer cancel()
	if err := s.emit(ctx, e); err != nil && s.ctx.Err() == nil {
		s.log.Error("write event", "sandbox", e.ID, "err", err)
	}
}
