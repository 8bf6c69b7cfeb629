package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

const (
	opTakeOver = "take over a copy's records"

	eventCopied = "sandbox.copied"
)

// Takeover says how a copy of a data directory makes its records its own.
type Takeover struct {
	// Original names the other directory, for people.
	Original string
	// Rename gives each sandbox a new ID. The original's sandbox keeps the old one.
	Rename bool
	// Back holds sandboxes whose earlier IDs they get again, by their present ones.
	Back map[carrel.ID]carrel.ID
	// Disown forgets how to reach running sandboxes: they are the original's.
	Disown bool
}

// TakeOver makes the records of a copied data directory its own, in one transaction, before a
// [Service] opens them. A paused sandbox stays paused. A sandbox that runs in the original is
// paused at its newest snapshot here. If it has none, its record stays, and the service reports it
// lost. It returns the earlier IDs of renamed sandboxes.
func (t Takeover) TakeOver(ctx context.Context, st state.Store) (map[carrel.ID]carrel.ID, error) {
	recs, err := st.Sandboxes(ctx)
	if err != nil {
		return nil, takeoverError(err)
	}
	snaps, err := st.Snapshots(ctx)
	if err != nil {
		return nil, takeoverError(err)
	}
	c, old := state.Change{}, map[carrel.ID]carrel.ID{}
	var told []carrel.Event
	for _, rec := range recs {
		id := rec.Sandbox.ID
		next, paused := t.ownRecord(rec, snaps)
		to := id
		switch back, had := t.Back[id]; {
		case had:
			to = back
		case t.Rename && paused:
			to = carrel.NewID()
			old[to] = id
		}
		if to != id {
			c.Delete = append(c.Delete, id)
			next.Sandbox.ID = to
			c.PutSnapshots = append(c.PutSnapshots, renamed(snaps, id, to)...)
		}
		c.Put = append(c.Put, next)
		if paused {
			told = append(told, t.event(next, id))
		}
	}
	if err := st.Apply(ctx, c); err != nil {
		return nil, takeoverError(err)
	}
	for _, e := range told {
		if _, err := st.AppendEvent(ctx, e); err != nil {
			return nil, takeoverError(err)
		}
	}
	return old, nil
}

// ownRecord is a record without what belongs to the original. paused says that the sandbox can be
// resumed from it.
func (t Takeover) ownRecord(rec state.Record,
	snaps []state.SnapshotRecord) (_ state.Record, paused bool) {
	if t.Disown {
		rec.Handle = nil
		if rec.Sandbox.State == carrel.Running {
			if sr, ok := newestOf(snaps, rec.Sandbox.ID); ok {
				return pausedAt(sr), true
			}
		}
	}
	return rec, rec.Sandbox.State == carrel.Paused
}

// newestOf returns the newest snapshot of a sandbox.
func newestOf(snaps []state.SnapshotRecord, id carrel.ID) (newest state.SnapshotRecord, ok bool) {
	for _, sr := range snaps {
		if sr.Snapshot.Sandbox == id && (!ok || !sr.Snapshot.Created.Before(newest.Snapshot.Created)) {
			newest, ok = sr, true
		}
	}
	return newest, ok
}

// renamed returns a sandbox's snapshots with its new ID.
func renamed(snaps []state.SnapshotRecord, id, to carrel.ID) []state.SnapshotRecord {
	mine := slices.DeleteFunc(slices.Clone(snaps),
		func(sr state.SnapshotRecord) bool { return sr.Snapshot.Sandbox != id })
	for i := range mine {
		mine[i].Snapshot.Sandbox, mine[i].Record.Sandbox.ID = to, to
	}
	return mine
}

// event tells where a sandbox comes from.
func (t Takeover) event(rec state.Record, was carrel.ID) carrel.Event {
	e := carrel.Event{Time: time.Now().UTC().Round(0), Type: eventCopied, ID: rec.Sandbox.ID,
		Project: rec.Sandbox.Project,
		Message: "it comes from " + t.Original, Fields: map[string]string{"snapshot": string(rec.Paused)}}
	if was != rec.Sandbox.ID {
		e.Message = fmt.Sprintf("it was sandbox %s of %s", was, t.Original)
		e.Fields["was"] = string(was)
	}
	return e
}

func takeoverError(err error) error {
	var e *carrel.Error
	if errors.As(err, &e) {
		return &carrel.Error{Op: opTakeOver, Kind: e.Kind, Err: err, Hint: e.Hint}
	}
	return &carrel.Error{Op: opTakeOver, Kind: carrel.Internal, Err: err}
}
