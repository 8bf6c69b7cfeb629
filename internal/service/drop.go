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

// errHeld refuses the deletion of a snapshot that somebody reads now.
var errHeld = errors.New("something is being made from it or compared with it")

// heldTime is how long a deletion on request waits for readers, and heldPause how often
// it looks.
const (
	heldTime  = 10 * time.Second
	heldPause = 20 * time.Millisecond
)

// DeleteSnapshot implements carrel.Moments. Somebody asks for it, so what is Kept,
// named or labelled goes too.
func (ar *archive) DeleteSnapshot(ctx context.Context, idOrName string) error {
	sr, err := ar.findSnapshot(ctx, opDrop, idOrName)
	if err != nil {
		return err
	}
	id := sr.Snapshot.ID
	dropped, refused, err := ar.dropSnapshots(ctx, []carrel.SnapshotID{id}, dropRule{})
	// A sandbox that was just begun from it may still be reading its pages, which takes
	// moments and is nothing that its caller knows of.
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

// dropRule says what of a set of snapshots is not dropped.
type dropRule struct {
	// may is asked, at the moment of decision, with index.mu held; nil lets all go.
	may func(carrel.Snapshot) bool
	// ended is a sandbox that needs none any more.
	ended carrel.ID
}

// dropSnapshots forgets snapshots: the records first, in one change with what
// refers to them, then the content. Those that are needed, in use, or spared by the
// rule stay; refused says why. After an error none is gone.
//
// A snapshot is needed while a paused sandbox names it. Records of sandboxes come to
// name one under box.save only, of its own sandbox or after a hold; so with box.save
// of those that do, or could, and index.edit, and claim refusing what is held, none
// gets a new user here.
func (ar *archive) dropSnapshots(ctx context.Context, ids []carrel.SnapshotID, rule dropRule) (
	dropped []carrel.SnapshotID, refused map[carrel.SnapshotID]error, err error) {
	if len(ids) == 0 {
		return nil, nil, nil
	}
	dropped, refused, err = ar.dropRecords(ctx, ids, rule)
	if err != nil || len(dropped) == 0 {
		return nil, refused, err
	}
	// From here on they are gone for everybody.
	_ = failpoint.Hit(pointDropped)
	for _, id := range dropped {
		ar.scrap(id)
	}
	return dropped, refused, nil
}

// dropRecords is the first half of dropSnapshots.
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

// recordsOf lists the records of boxes, and those of the snapshots' own sandboxes that
// this service could not adopt: the next one may.
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

// lockUsers takes box.save of the sandboxes whose records name one of the snapshots,
// or that they are moments of. Several are taken in the order of their IDs.
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

// usersOf lists those sandboxes, by ID.
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

// durable returns the record as it is to be on the disk while something is under way
// with the sandbox: the state before, or after, but not that of being between. ok is
// false for one whose record must not be written now: it is being made, which does
// that, or is ending, after which there is none.
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
