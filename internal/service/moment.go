package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/failpoint"
	"github.com/carrel-dev/carrel/internal/service/timeline"
	"github.com/carrel-dev/carrel/internal/state"
)

// The steps of snapshot operations, in order. At each of them, a test can kill the service or fill
// the disk (package failpoint).
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
	pointDropped   = "service.drop.recorded" // a snapshot without a record still has content
)

// FailPoints lists the steps at which tests kill the service, by their names in package failpoint.
func FailPoints() []string {
	return []string{pointFrozen, pointTaken, pointCommitted, pointRecorded, pointDestroyed, pointSnapped,
		pointOpened, pointRestored, pointGreeted, pointResumed, pointTurned, pointForked, pointDropped}
}

// wish describes a snapshot to take.
type wish struct {
	cause               carrel.Cause
	filesOnly           bool
	name, label, detail string
}

// scrapAgain is the wait after a failed removal.
const scrapAgain = 3 * time.Second

// moments pauses, resumes, forks and rolls back sandboxes.
type moments struct {
	opts      *Options
	log       *slog.Logger
	table     *table
	snaps     *timeline.Index
	rules     *rules
	journal   *journal
	roots     *roots
	records   *records
	templates *templates
	resolver  *resolver
	launcher  *launcher
	greeter   *greeter
	networks  *networks
	gates     *gates
	archive   *archive
	lifecycle *lifecycle
	creator   *creator
	tether    *Tether
}

// Snapshot implements carrel.Moments. For a paused sandbox, it returns the snapshot that the
// sandbox will resume from.
func (m *moments) Snapshot(ctx context.Context, id carrel.ID, o carrel.SnapshotOptions) (carrel.Snapshot, error) {
	const op = "take snapshot"
	if err := first(checkSnapshotName(op, o.Name), checkLabel(op, o.Label)); err != nil {
		return carrel.Snapshot{}, err
	}
	if o.Cause == "" {
		o.Cause = carrel.CauseRequest
	}
	b, err := m.table.find(op, id)
	if err != nil {
		return carrel.Snapshot{}, err
	}
	if b.public().State == carrel.Starting {
		return carrel.Snapshot{}, b.running(op)
	}
	ctx, release, err := m.table.take(ctx, op, b)
	if err != nil {
		return carrel.Snapshot{}, err
	}
	defer release()
	if o.Cause == carrel.CauseCommand { // the guest does not know FilesOnly
		o.FilesOnly = b.public().Lifecycle.Checkpoints.FilesOnly
	}
	w := wish{cause: o.Cause, filesOnly: o.FilesOnly, name: o.Name, label: o.Label, detail: o.Detail}
	var sr state.SnapshotRecord
	if b.public().State == carrel.Paused {
		sr, err = m.promote(ctx, b, w)
	} else {
		sr, err = m.snap(ctx, b, w)
	}
	if err != nil {
		return carrel.Snapshot{}, b.momentError(ctx, op, err)
	}
	return m.archive.withCost(ctx, sr.Snapshot), nil
}

// snap takes a snapshot of a running sandbox and makes it the sandbox's newest.
func (m *moments) snap(ctx context.Context, b *box, w wish) (state.SnapshotRecord, error) {
	if err := b.running(""); err != nil {
		return state.SnapshotRecord{}, err
	}
	if err := m.archive.mayKeep(b.record(), w.cause, 0); err != nil {
		return state.SnapshotRecord{}, err
	}
	m.greeter.settle(ctx, b, leaveTime)
	sr, err := m.archive.keep(ctx, b, w)
	if err != nil {
		return sr, err
	}
	b.save.Lock()
	defer b.save.Unlock()
	rec := b.record()
	sr.Snapshot.Parent = rec.Sandbox.Snapshot // the previous one may be deleted by now
	rec.Sandbox.Snapshot = sr.Snapshot.ID
	unlock := m.snaps.LockEdits()
	if err = b.running(""); err == nil {
		err = m.archive.mayKeep(rec, w.cause, sr.Snapshot.Size) // nobody else adds one now
	}
	if err == nil {
		err = m.records.apply(ctx, state.Change{Put: []state.Record{rec}, PutSnapshots: append(m.archive.renamed(sr), sr)})
	}
	unlock()
	if err != nil {
		m.archive.scrap(sr.Snapshot.ID)
		return sr, err
	}
	b.mu.Lock()
	b.rec.Sandbox.Snapshot = sr.Snapshot.ID
	b.enrollLocked()
	b.mu.Unlock()
	_ = failpoint.Hit(pointSnapped)
	m.journal.tell(snapshotEvent(sr.Snapshot))
	m.table.spawn(func() { m.archive.prune(b.id) })
	return sr, nil
}

// settleTime is how long a creation waits for its guest to settle. Hooks may take long.
const settleTime = 10 * time.Second

// promote turns the snapshot that a paused sandbox will resume from into a requested one: it is
// Kept, and has the requested name and label.
func (m *moments) promote(ctx context.Context, b *box, w wish) (state.SnapshotRecord, error) {
	defer m.snaps.LockEdits()()
	sr, ok := m.snaps.Get(b.record().Paused)
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
	if err := m.records.apply(ctx, state.Change{PutSnapshots: append(m.archive.renamed(sr), sr)}); err != nil {
		return sr, err
	}
	m.journal.tell(snapshotEvent(sr.Snapshot))
	return sr, nil
}

// snapshotEvent is the event of a new snapshot.
func snapshotEvent(sn carrel.Snapshot) carrel.Event {
	what := "files"
	if sn.Memory {
		what = "memory, processes and files"
	}
	return carrel.Event{Type: eventSnapshot, ID: sn.Sandbox, Time: sn.Created,
		Message: fmt.Sprintf("snapshot %s of its %s was taken (%s)", sn.ID, what, sn.Cause),
		Fields:  map[string]string{"snapshot": string(sn.ID), "cause": string(sn.Cause), "label": sn.Label}}
}
