// Package state is the contract of the durable records: what the service writes
// down so that nothing acknowledged is lost when the daemon dies.
//
// Package sqlite implements it on a file, package memory without one. A write
// has reached the disk when the method returns.
package state

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/carrel-dev/carrel"
)

// Record is one sandbox as it is remembered. It holds secrets (the tokens): a
// Store keeps it where only the daemon's user can read.
type Record struct {
	Sandbox carrel.Sandbox    // its public face
	Handle  []byte            // the driver's handle; nil until the driver created it
	Env     map[string]string // default environment, given to the guest
	User    string            // default user
	WorkDir string            // default working directory
	Start   []string          // the template's own command, run at every boot
	// Timeout is the one it was last given: what it gets when it wakes by itself.
	Timeout time.Duration
	// Paused is the snapshot that a paused sandbox resumes from; "" while it runs.
	Paused carrel.SnapshotID
	// Wake says that a paused sandbox is on its way back (a rollback): a service that
	// finds it so resumes it.
	Wake bool
	// Sound says that a paused sandbox was paused on request and without memory: requests
	// to it don't wake it, as E2B has it.
	Sound bool
	// Born is the snapshot that it was made from; "" when from a template.
	Born carrel.SnapshotID
	// Root is the root image that it runs on: the name of a file that the service keeps
	// for as long as a sandbox or a snapshot needs it.
	Root string
	// Guest is the name of the guest's image that it runs: memory holds a running guest, so
	// a snapshot with memory needs the very same.
	Guest string
}

// Warm is the state of a sandbox that was made ahead and is nobody's yet. It is a state
// of records only: no door shows such a sandbox.
const Warm carrel.State = "warm"

// SnapshotRecord is one snapshot as it is remembered. Its content is in the
// snapshot store.
type SnapshotRecord struct {
	Snapshot carrel.Snapshot
	// Record is the sandbox's at that moment: what a fork is made from. It holds secrets.
	Record Record
}

// UnmarshalJSON reads a record also as it was before sandboxes had a project.
func (r *Record) UnmarshalJSON(raw []byte) error {
	type plain Record
	old := struct {
		*plain
		Owner string // the project, or "" for the only one
	}{plain: (*plain)(r)}
	if err := json.Unmarshal(raw, &old); err != nil {
		return err
	}
	r.Sandbox.Project = cmp.Or(r.Sandbox.Project, old.Owner, carrel.DefaultProject)
	return nil
}

// UnmarshalJSON reads a record also as it was before snapshots had a project.
func (r *SnapshotRecord) UnmarshalJSON(raw []byte) error {
	type plain SnapshotRecord
	if err := json.Unmarshal(raw, (*plain)(r)); err != nil {
		return err
	}
	r.Snapshot.Project = cmp.Or(r.Snapshot.Project, r.Record.Sandbox.Project)
	return nil
}

// Change is a set of writes that happen together or not at all. They are made in
// the order of the fields, so that what is put and deleted by one Change is gone;
// of two records with one ID the later stays.
type Change struct {
	Put             []Record
	Delete          []carrel.ID
	PutSnapshots    []SnapshotRecord
	DeleteSnapshots []carrel.SnapshotID
	// Bury leaves tombstones for snapshots that have no record yet. The content of such a snapshot is
	// removed unless its record follows.
	Bury []carrel.SnapshotID
}

// Tombstones are the IDs of deleted records. Leftovers with these IDs may be removed, because a caller
// asked for the deletion. Leftovers without a record and without a tombstone must stay: the records
// themselves may be lost.
type Tombstones struct {
	Sandboxes []carrel.ID
	Snapshots []carrel.SnapshotID
}

// Add adds an ID of either form. It ignores other texts.
func (t *Tombstones) Add(id string) {
	if sandbox, err := carrel.ParseID(id); err == nil {
		t.Sandboxes = append(t.Sandboxes, sandbox)
	} else if snapshot, err := carrel.ParseSnapshotID(id); err == nil {
		t.Snapshots = append(t.Snapshots, snapshot)
	}
}

// Store keeps records and events. All methods are safe for concurrent use and
// return errors of kind NotFound, Exhausted (the disk) or Internal.
type Store interface {
	PutSandbox(ctx context.Context, r Record) error
	GetSandbox(ctx context.Context, id carrel.ID) (Record, error)
	// DeleteSandbox forgets a sandbox. Its events stay, so that its end can be told
	// afterwards. Idempotent.
	DeleteSandbox(ctx context.Context, id carrel.ID) error
	// Sandboxes returns all records, oldest first.
	Sandboxes(ctx context.Context) ([]Record, error)

	// Apply makes all writes of a change at once: after an error, as after a crash,
	// none of them happened. Deleting what is not there is no error.
	Apply(ctx context.Context, c Change) error
	GetSnapshot(ctx context.Context, id carrel.SnapshotID) (SnapshotRecord, error)
	// Snapshots returns the records of all snapshots, oldest first.
	Snapshots(ctx context.Context) ([]SnapshotRecord, error)

	// Tombstones returns the IDs of records that were deleted, in no order. A record that is put again
	// has none.
	Tombstones(ctx context.Context) (Tombstones, error)
	// TrimTombstones forgets tombstones older than before.
	TrimTombstones(ctx context.Context, before time.Time) error

	// AppendEvent stores e and returns it with its sequence number, which rises by
	// one from event to event.
	AppendEvent(ctx context.Context, e carrel.Event) (carrel.Event, error)
	// Events returns at most limit events after seq, in order; id "" means all sandboxes.
	Events(ctx context.Context, id carrel.ID, after int64, limit int) ([]carrel.Event, error)
	// TrimEvents forgets events older than before.
	TrimEvents(ctx context.Context, before time.Time) error
	Close() error
}
