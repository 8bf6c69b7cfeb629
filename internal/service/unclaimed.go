package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/linux/overlay"
	"github.com/carrel-dev/carrel/internal/service/timeline"
	"github.com/carrel-dev/carrel/internal/snapshot"
	"github.com/carrel-dev/carrel/internal/state"
)

const (
	opUnclaimed = "list unclaimed things"
	opReclaim   = "reclaim"
	opDiscard   = "discard"

	eventReclaimed = "sandbox.reclaimed"

	// unclaimedFile remembers since when each thing has been unclaimed.
	unclaimedFile = ".unclaimed.json"
	// unclaimedAge is how long a thing may be unclaimed before it is removed.
	unclaimedAge = 30 * 24 * time.Hour
)

// The reasons that people read.
const (
	reasonContent = "its content is there, and no record of it: the records were lost, or are older than it"
	reasonSandbox = "the sandbox is there, and no record of it: the records were lost, or are older than it"
)

// lostAndFound keeps the things that a service finds at its start and has no record of. It removes
// none of them because the record is missing: the record may have been lost.
type lostAndFound struct {
	opts    *Options
	log     *slog.Logger
	table   *table
	snaps   *timeline.Index
	records *records
	journal *journal
	adopt   func(ctx context.Context, rec state.Record) // a paused sandbox, whose record is written

	edit sync.Mutex // only one Reclaim or Discard runs at a time

	mu    sync.Mutex
	found map[string]time.Time // since when; also of things that are gone, until the next start
	items map[string]lostItem
}

// lostItem is one unclaimed thing.
type lostItem struct {
	carrel.Unclaimed
	record *state.SnapshotRecord // the snapshot's own copy of its record
}

// load reads since when things have been unclaimed. If the file is damaged, everything counts as
// found today.
func (l *lostAndFound) load() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.found, l.items = map[string]time.Time{}, map[string]lostItem{}
	b, err := os.ReadFile(filepath.Join(l.opts.Dir, unclaimedFile))
	if err == nil {
		err = json.Unmarshal(b, &l.found)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.log.Warn("since when things have been unclaimed is not known", "err", err)
	}
	if l.found == nil {
		l.found = map[string]time.Time{}
	}
}

// save writes the list of unclaimed things, and since when each has been unclaimed.
func (l *lostAndFound) save() {
	l.mu.Lock()
	maps.DeleteFunc(l.found, func(id string, _ time.Time) bool { _, there := l.items[id]; return !there })
	b, err := json.Marshal(l.found)
	none := len(l.found) == 0
	l.mu.Unlock()
	path := filepath.Join(l.opts.Dir, unclaimedFile)
	switch {
	case none:
		if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	case err == nil:
		err = atomicfile.Write(path, b, 0o600)
	}
	if err != nil {
		l.log.Error("remember since when things have been unclaimed", "err", err)
	}
}

// any reports whether there are unclaimed things.
func (l *lostAndFound) any() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.items) > 0
}

// add takes a thing in.
func (l *lostAndFound) add(it lostItem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	since, known := l.found[it.ID]
	if !known {
		since = time.Now().UTC().Round(time.Second)
		l.found[it.ID] = since
	}
	it.Found, it.Expires = since, since.Add(unclaimedAge)
	l.items[it.ID] = it
}

// addSnapshot adds the content of a snapshot.
func (l *lostAndFound) addSnapshot(ctx context.Context, id carrel.SnapshotID) {
	it := lostItem{Unclaimed: carrel.Unclaimed{ID: string(id), Kind: carrel.UnclaimedSnapshot, Reason: reasonContent}}
	m, err := l.opts.Snapshots.Get(ctx, id)
	if err == nil {
		it.record, err = recordOf(m)
	}
	if err != nil {
		it.Problem = err.Error()
	} else {
		sn := it.record.Snapshot
		it.Sandbox, it.Project, it.Tier, it.Cause, it.Created, it.Size = sn.Sandbox, sn.Project, sn.Tier, sn.Cause, sn.Created, sn.Size
	}
	l.add(it)
}

// recordOf makes a snapshot's record from its manifest.
func recordOf(m snapshot.Manifest) (*state.SnapshotRecord, error) {
	var sr state.SnapshotRecord
	err := json.Unmarshal(m.Meta, &sr)
	if err == nil && (sr.Snapshot.ID != m.ID || sr.Record.Sandbox.ID != sr.Snapshot.Sandbox) {
		err = errors.New("it speaks of another snapshot")
	}
	if err == nil {
		_, err = carrel.ParseID(string(sr.Snapshot.Sandbox))
	}
	if err != nil {
		return nil, &carrel.Error{Op: opReclaim, Kind: carrel.Invalid, Err: fmt.Errorf("what snapshot %s says of itself can't be read: %w", m.ID, err)}
	}
	sr.Snapshot.Size = m.Size
	return &sr, nil
}

// addSandbox adds a sandbox, or the remains of one.
func (l *lostAndFound) addSandbox(id carrel.ID) {
	l.add(lostItem{Unclaimed: carrel.Unclaimed{ID: string(id), Kind: carrel.UnclaimedSandbox, Reason: reasonSandbox,
		Problem: "how to reach it was in its record"}})
}

// announce logs what was found, for a person.
func (l *lostAndFound) announce() {
	l.save()
	l.mu.Lock()
	snapshots, sandboxes := 0, 0
	for _, it := range l.items {
		if it.Kind == carrel.UnclaimedSnapshot {
			snapshots++
		} else {
			sandboxes++
		}
	}
	l.mu.Unlock()
	if snapshots+sandboxes > 0 {
		l.log.Error("there are snapshots or sandboxes that no record names: they are kept", "snapshots", snapshots, "sandboxes", sandboxes,
			"hint", "carrel fsck lists them, carrel fsck --repair makes their records again")
	}
}

// lastPause returns the unclaimed snapshot at which a sandbox was paused, if it is the newest of
// the sandbox's unclaimed snapshots.
func (l *lostAndFound) lastPause(id carrel.ID) (state.SnapshotRecord, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var newest *state.SnapshotRecord
	for _, it := range l.items {
		if it.record != nil && it.Sandbox == id && (newest == nil || it.record.Snapshot.Created.After(newest.Snapshot.Created)) {
			newest = it.record
		}
	}
	if newest == nil || !isPause(newest.Snapshot.Cause) {
		return state.SnapshotRecord{}, false
	}
	return *newest, true
}

// isPause reports whether a snapshot of this cause is the state of a paused sandbox.
func isPause(c carrel.Cause) bool {
	return c == carrel.CausePause || c == carrel.CauseTimeout ||
		c == carrel.CauseIdle || c == carrel.CauseBudget
}

// claimed removes snapshots from the list that have a record now.
func (l *lostAndFound) claimed(ids ...carrel.SnapshotID) {
	l.mu.Lock()
	for _, id := range ids {
		delete(l.items, string(id))
	}
	l.mu.Unlock()
}

// roots adds the root images that unclaimed snapshots need. all says that any image may be needed,
// because an unclaimed thing does not say which.
func (l *lostAndFound) roots(need map[string]bool) (all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, it := range l.items {
		if it.record == nil {
			return true
		}
		need[it.record.Record.Root] = true
	}
	return false
}

// Unclaimed implements carrel.Checks.
func (l *lostAndFound) Unclaimed(context.Context) ([]carrel.Unclaimed, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]carrel.Unclaimed, 0, len(l.items))
	for _, it := range l.items {
		out = append(out, it.Unclaimed)
	}
	slices.SortFunc(out, func(a, b carrel.Unclaimed) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

// find returns one thing.
func (l *lostAndFound) find(op, id string) (lostItem, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	it, ok := l.items[id]
	if !ok {
		return it, &carrel.Error{Op: op, Kind: carrel.NotFound, Field: "id", Err: fmt.Errorf("%s is not unclaimed", clip(id)),
			Hint: "see carrel fsck"}
	}
	return it, nil
}

// Reclaim implements carrel.Checks.
func (l *lostAndFound) Reclaim(ctx context.Context, id string) error {
	l.edit.Lock()
	defer l.edit.Unlock()
	it, err := l.find(opReclaim, id)
	switch {
	case err != nil:
		return err
	case it.Kind == carrel.UnclaimedSandbox:
		return &carrel.Error{Op: opReclaim, Kind: carrel.Unsupported, ID: carrel.ID(id),
			Err:  errors.New("how to reach a running sandbox is known from its record alone"),
			Hint: "put the file records.ledger of that time back and start again, or end it with: carrel fsck --delete " + id}
	case it.record == nil:
		return &carrel.Error{Op: opReclaim, Kind: carrel.Invalid, Field: "id", Err: errors.New(it.Problem),
			Hint: "delete it with: carrel fsck --delete " + id}
	}
	sr, c := *it.record, state.Change{}
	defer l.snaps.LockEdits()()
	sr.Snapshot.Names = slices.DeleteFunc(slices.Clone(sr.Snapshot.Names), func(n string) bool {
		_, taken := l.snaps.Holder(sr.Snapshot.Project, n)
		return taken
	})
	rec, back := l.sandboxOf(ctx, sr)
	if back {
		c.Put = []state.Record{rec}
	} else {
		sr.Snapshot.Kept = true // its sandbox is gone, and with it the sandbox's retention
	}
	c.PutSnapshots = []state.SnapshotRecord{sr}
	if err := l.records.apply(ctx, c); err != nil {
		return &carrel.Error{Op: opReclaim, Kind: carrel.KindOf(err), Err: err, Hint: carrel.HintOf(err)}
	}
	l.claimed(sr.Snapshot.ID)
	if back {
		l.adopt(ctx, rec)
	}
	l.journal.tell(carrel.Event{Type: eventReclaimed, ID: sr.Snapshot.Sandbox, Message: fmt.Sprintf("the record of snapshot %s was made again", id),
		Fields: map[string]string{"snapshot": id}})
	return nil
}

// sandboxOf makes the record of a sandbox that was paused at a snapshot. It reports false if the
// sandbox has a record, or went on from that moment.
func (l *lostAndFound) sandboxOf(ctx context.Context, sr state.SnapshotRecord) (rec state.Record, ok bool) {
	id := sr.Snapshot.Sandbox
	if last, is := l.lastPause(id); !is || last.Snapshot.ID != sr.Snapshot.ID {
		return rec, false
	}
	if _, err := l.opts.Store.GetSandbox(ctx, id); err == nil || l.table.boxOf(id) != nil {
		return rec, false
	}
	if _, running := l.unclaimed(string(id)); running {
		return rec, false
	}
	for _, other := range l.snaps.List(id, func(carrel.Snapshot) bool { return true }) {
		if other.Created.After(sr.Snapshot.Created) {
			return rec, false
		}
	}
	return pausedAt(sr), true
}

// unclaimed returns one thing, if it is there.
func (l *lostAndFound) unclaimed(id string) (lostItem, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	it, ok := l.items[id]
	return it, ok
}

// pausedAt is the record of a sandbox that is paused at a snapshot of its own.
func pausedAt(sr state.SnapshotRecord) state.Record {
	rec := sr.Record
	rec.Sandbox.State, rec.Sandbox.Snapshot, rec.Paused = carrel.Paused, sr.Snapshot.ID, sr.Snapshot.ID
	rec.Handle, rec.Wake, rec.Sound = nil, false, !sr.Snapshot.Memory && sr.Snapshot.Cause == carrel.CausePause
	return rec
}

// Discard implements carrel.Checks.
func (l *lostAndFound) Discard(ctx context.Context, id string) error {
	l.edit.Lock()
	defer l.edit.Unlock()
	it, err := l.find(opDiscard, id)
	if err != nil {
		return err
	}
	if it.Kind == carrel.UnclaimedSnapshot {
		err = l.opts.Snapshots.Delete(ctx, carrel.SnapshotID(id))
	} else {
		err = l.destroy(ctx, carrel.ID(id))
	}
	if err != nil {
		return &carrel.Error{Op: opDiscard, Kind: carrel.KindOf(err), Err: err, Hint: carrel.HintOf(err)}
	}
	l.mu.Lock()
	delete(l.items, id)
	l.mu.Unlock()
	l.log.Warn("an unclaimed thing was removed", "id", id, "kind", it.Kind, "found", it.Found)
	return nil
}

// destroy ends a sandbox without a record.
func (l *lostAndFound) destroy(ctx context.Context, id carrel.ID) error {
	var errs []error
	for _, drv := range l.opts.Drivers.All() {
		if sw, ok := driver.As[driver.Sweeper](drv); ok {
			errs = append(errs, sw.DestroyStray(ctx, id))
		}
	}
	return errors.Join(append(errs, overlay.Remove(filepath.Join(l.opts.Dir, string(id))))...)
}

// expire removes what has been unclaimed for too long.
func (l *lostAndFound) expire(ctx context.Context) {
	l.mu.Lock()
	var old []string
	for id, it := range l.items {
		if time.Now().After(it.Expires) {
			old = append(old, id)
		}
	}
	l.mu.Unlock()
	for _, id := range old {
		if err := l.Discard(ctx, id); err != nil && ctx.Err() == nil && !errors.Is(err, carrel.NotFound) {
			l.log.Error("remove an unclaimed thing", "id", id, "err", err)
		}
	}
}
