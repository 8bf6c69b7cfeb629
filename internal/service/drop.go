package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/failpoint"
	"github.com/carrel-dev/carrel/internal/service/timeline"
	"github.com/carrel-dev/carrel/internal/state"
)

const (
	opDrop       = "delete snapshot"
	eventDropped = "sandbox.snapshot_deleted"
)

// errHeld refuses the deletion of a snapshot that is being read.
var errHeld = errors.New("something is being made from it or compared with it")

// heldTime is how long a requested deletion waits for readers. heldPause is the time between two
// checks.
const (
	heldTime  = 10 * time.Second
	heldPause = 20 * time.Millisecond
)

// DeleteSnapshot implements carrel.Moments. The caller asks for this snapshot by name, so it is
// deleted even if it is Kept, named or labelled.
func (ar *archive) DeleteSnapshot(ctx context.Context, idOrName string) error {
	sr, err := ar.findSnapshot(ctx, opDrop, idOrName)
	if err != nil {
		return err
	}
	id := sr.Snapshot.ID
	dropped, refused, err := ar.dropSnapshots(ctx, []carrel.SnapshotID{id}, dropRule{})
	// A sandbox that was just made from the snapshot may still be reading its pages. This takes
	// moments, and the caller can't know about it.
	for end := time.Now().Add(heldTime); errors.Is(refused[id], errHeld) && time.Now().Before(end) && sleep(ctx, heldPause); {
		dropped, refused, err = ar.dropSnapshots(ctx, []carrel.SnapshotID{id}, dropRule{})
	}
	switch {
	case err != nil:
		return &carrel.Error{Op: opDrop, Kind: carrel.KindOf(err), Err: err, Hint: carrel.HintOf(err)}
	case refused[id] != nil:
		return refused[id]
	case len(dropped) == 0: // another was faster
		_, err := ar.findSnapshot(ctx, opDrop, string(id))
		return err
	}
	if sb := sr.Snapshot.Sandbox; ar.table.boxOf(sb) != nil {
		ar.journal.tell(carrel.Event{Type: eventDropped, ID: sb, Message: fmt.Sprintf("snapshot %s was deleted on request", id),
			Fields: map[string]string{"snapshot": string(id)}})
	}
	return nil
}

// dropRule says which of a set of snapshots must stay.
type dropRule struct {
	// may decides for one snapshot, with index.mu held. Nil allows every snapshot to go.
	may func(carrel.Snapshot) bool
	// ended is a sandbox that needs no snapshots any more.
	ended carrel.ID
}

// dropSnapshots removes snapshots. It removes the records first, in one change with the records
// that refer to them, and then the contents. Snapshots that are needed, in use, or spared by the
// rule stay, and refused says why. After an error, all of them stay.
//
// A snapshot is needed while a paused sandbox names it. No snapshot gets a new user during the
// removal. A record starts to name a snapshot only under its box.save, and only a snapshot of its
// own sandbox or one that is held. dropSnapshots therefore takes index.edit and box.save of every
// sandbox that names the snapshots or could, and claim refuses held snapshots.
func (ar *archive) dropSnapshots(ctx context.Context, ids []carrel.SnapshotID, rule dropRule) (
	dropped []carrel.SnapshotID, refused map[carrel.SnapshotID]error, err error) {
	if len(ids) == 0 {
		return nil, nil, nil
	}
	dropped, refused, err = ar.dropRecords(ctx, ids, rule)
	if err != nil || len(dropped) == 0 {
		return nil, refused, err
	}
	// From here on, nobody can find these snapshots.
	_ = failpoint.Hit(pointDropped)
	for _, id := range dropped {
		ar.scrap(id)
	}
	return dropped, refused, nil
}

// dropRecords is the first half of dropSnapshots: it removes the records.
func (ar *archive) dropRecords(ctx context.Context, ids []carrel.SnapshotID, rule dropRule) (
	dropped []carrel.SnapshotID, refused map[carrel.SnapshotID]error, err error) {
	set := map[carrel.SnapshotID]bool{}
	for _, id := range ids {
		set[id] = true
	}
	boxes, unlock := ar.lockUsers(set)
	defer unlock()
	defer ar.snaps.LockEdits()()
	refused = map[carrel.SnapshotID]error{}
	for _, rec := range ar.recordsOf(ctx, boxes, set) {
		if p := rec.Paused; set[p] && rec.Sandbox.ID != rule.ended {
			refused[p] = &carrel.Error{Op: opDrop, Kind: carrel.Conflict, ID: rec.Sandbox.ID, Field: "snapshotID",
				Err: fmt.Errorf("the paused sandbox needs snapshot %s to resume", p), Hint: "resume or kill that sandbox first"}
			delete(set, p)
		}
	}
	claimed := ar.snaps.Claim(set, func(sr state.SnapshotRecord, held bool) bool {
		id := sr.Snapshot.ID
		if held {
			refused[id] = &carrel.Error{Op: opDrop, Kind: carrel.Conflict, ID: sr.Snapshot.Sandbox, Field: "snapshotID",
				Err: fmt.Errorf("snapshot %s is in use: %w", id, errHeld), Hint: "try again in a moment"}
		} else if rule.may != nil && !rule.may(sr.Snapshot) {
			refused[id] = &carrel.Error{Op: opDrop, Kind: carrel.Conflict, Err: fmt.Errorf("snapshot %s is to be kept", id)}
		}
		return refused[id] == nil
	})
	if len(claimed) == 0 {
		return nil, refused, nil
	}
	c := state.Change{PutSnapshots: ar.snaps.Orphans(claimed)}
	var moved []*box
	for _, b := range boxes {
		rec, ok := b.durable()
		if _, gone := claimed[rec.Sandbox.Snapshot]; !gone {
			continue
		}
		moved = append(moved, b)
		if ok {
			rec.Sandbox.Snapshot = timeline.Above(claimed, rec.Sandbox.Snapshot)
			c.Put = append(c.Put, rec)
		}
	}
	for id := range claimed {
		c.DeleteSnapshots = append(c.DeleteSnapshots, id)
	}
	slices.Sort(c.DeleteSnapshots)
	if err := ar.records.apply(ctx, c); err != nil {
		for _, sr := range claimed {
			ar.snaps.Put(sr)
		}
		return nil, refused, err
	}
	for _, b := range moved {
		b.mu.Lock()
		b.rec.Sandbox.Snapshot = timeline.Above(claimed, b.rec.Sandbox.Snapshot)
		b.enrollLocked()
		b.mu.Unlock()
	}
	return c.DeleteSnapshots, refused, nil
}

// recordsOf lists the records of boxes, and the records of the snapshots' own sandboxes that this
// service could not adopt. The next service may still adopt those.
func (ar *archive) recordsOf(ctx context.Context, boxes []*box, set map[carrel.SnapshotID]bool) []state.Record {
	var out []state.Record
	for _, b := range boxes {
		out = append(out, b.record())
	}
	for id := range set {
		sr, ok := ar.snaps.Get(id)
		if !ok || ar.table.boxOf(sr.Snapshot.Sandbox) != nil {
			continue
		}
		if rec, err := ar.opts.Store.GetSandbox(ctx, sr.Snapshot.Sandbox); err == nil {
			out = append(out, rec)
		}
	}
	return out
}

// lockUsers locks box.save of each sandbox whose record names one of the snapshots, and of each
// sandbox from which one of them was taken. It locks in the order of the sandboxes' IDs.
func (ar *archive) lockUsers(set map[carrel.SnapshotID]bool) (boxes []*box, unlock func()) {
	for {
		boxes = ar.usersOf(set)
		for _, b := range boxes {
			b.save.Lock()
		}
		unlock = func() {
			for _, b := range boxes {
				b.save.Unlock()
			}
		}
		missed := slices.ContainsFunc(ar.usersOf(set), func(b *box) bool { return !slices.Contains(boxes, b) })
		if !missed {
			return boxes, unlock
		}
		unlock()
	}
}

// usersOf lists the sandboxes that lockUsers locks, in the order of their IDs.
func (ar *archive) usersOf(set map[carrel.SnapshotID]bool) []*box {
	out := ar.table.roll.usersOf(set)
	for id := range set {
		sr, ok := ar.snaps.Get(id)
		if !ok {
			continue
		}
		if b := ar.table.boxOf(sr.Snapshot.Sandbox); b != nil && !slices.Contains(out, b) {
			out = append(out, b)
		}
	}
	slices.SortFunc(out, func(a, b *box) int { return strings.Compare(string(a.id), string(b.id)) })
	return out
}

// durable returns the record as it must be on disk while an operation on the sandbox is under way.
// It has the state before or after the operation, never a state in between. ok is false for a
// record that must not be written now: a creation writes its own record, and an ending removes it.
func (b *box) durable() (_ state.Record, ok bool) {
	rec := b.record()
	switch rec.Sandbox.State {
	case carrel.Starting, carrel.Stopping:
		return rec, false
	case carrel.Pausing, carrel.Resuming:
		rec.Sandbox.State = carrel.Running
		if rec.Paused != "" {
			rec.Sandbox.State = carrel.Paused
		}
	}
	return rec, true
}
