// Package state is the contract for durable records. The service writes them so that nothing that
// it acknowledged is lost when the daemon dies.
//
// Package sqlite implements the contract on a file, package postgres in a database that several
// processes share, package memory without either. A write has reached the disk when the method
// returns.
package state

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/carrel-dev/carrel"
)

// Record is the stored data of one sandbox. It holds secrets (the tokens), so a Store must keep it
// where only the daemon's user can read.
type Record struct {
	Sandbox carrel.Sandbox    // its public face
	Handle  []byte            // the driver's handle; nil until the driver created it
	Env     map[string]string // default environment for the guest
	User    string            // default user
	WorkDir string            // default working directory
	Start   []string          // the template's own command, run at every boot
	// Timeout is the last timeout that a request set. The sandbox gets it again when it wakes
	// without a request for another.
	Timeout time.Duration
	// Paused is the snapshot that a paused sandbox resumes from; "" while it runs.
	Paused carrel.SnapshotID
	// Wake says that a paused sandbox is on its way back (a rollback). A service that finds it
	// resumes it.
	Wake bool
	// Sound says that a sandbox was paused on request and without memory. As in E2B, requests to it
	// don't wake it.
	Sound bool
	// Born is the snapshot that the sandbox was made from; "" for a template.
	Born carrel.SnapshotID
	// Root is the sandbox's root image. It is the name of a file that the service keeps for as long
	// as a sandbox or a snapshot needs it.
	Root string
	// Guest is the name of the guest image that the sandbox runs. A snapshot with memory contains a
	// running guest, so it needs exactly this image.
	Guest string
	// By is the name of the API key that made the sandbox; "" is not recorded.
	By string `json:",omitempty"`
	// KeyID is the ID of that key; "" for other credentials.
	KeyID string `json:",omitempty"`
	// Key is the idempotency key of the sandbox's creation; "" is none. KeySum is the fingerprint of
	// what the creation asked for.
	Key    string   `json:",omitempty"`
	KeySum [32]byte `json:",omitzero"`
}

// Warm is the state of a sandbox that was made ahead and belongs to nobody yet. Only records have
// this state: no door shows such a sandbox.
const Warm carrel.State = "warm"

// SnapshotRecord is the stored data of one snapshot. Its content is in the snapshot store.
type SnapshotRecord struct {
	Snapshot carrel.Snapshot
	// Record is the sandbox's record at that moment. Forks are made from it. It holds secrets.
	Record Record
	// Build is the driver's build that can restore the memory; "" is not recorded.
	Build string `json:",omitempty"`
}

// UnmarshalJSON also reads records from before sandboxes had a project.
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

// UnmarshalJSON also reads records from before snapshots had a project.
func (r *SnapshotRecord) UnmarshalJSON(raw []byte) error {
	type plain SnapshotRecord
	if err := json.Unmarshal(raw, (*plain)(r)); err != nil {
		return err
	}
	r.Snapshot.Project = cmp.Or(r.Snapshot.Project, r.Record.Sandbox.Project)
	return nil
}

// ProjectRecord is the stored data of one project.
type ProjectRecord struct {
	Project carrel.Project
	Members []carrel.Member `json:",omitempty"`
	Allowance
	Budgets []BudgetRecord `json:",omitempty"`
}

// Allowance is what a project or a key may use and allow. Both are replaced, never changed.
type Allowance struct {
	Quota   *carrel.Quota   `json:",omitempty"`
	Ceiling *carrel.Ceiling `json:",omitempty"`
}

// BudgetRecord is the stored data of one budget. What is spent is in the usage.
type BudgetRecord struct {
	Budget carrel.Budget
	// Warned and Over are the beginnings of the periods for which the budget last warned and last
	// said that it is spent; zero is never.
	Warned time.Time `json:",omitzero"`
	Over   time.Time `json:",omitzero"`
}

// KeyRecord is the stored data of one API key.
//
// The secret itself is not stored. It has 160 random bits, so its SHA-256 can't be turned back by
// trying, and a slow hash, as for passwords that people choose, would add nothing but time to each
// request.
type KeyRecord struct {
	Key carrel.APIKey
	// Sum is the SHA-256 of the secret, and Old that of the secret before, which works until
	// Key.OldUntil.
	Sum [32]byte
	Old [32]byte `json:",omitzero"`
	Allowance
}

// PersonRecord is the stored data of one person.
type PersonRecord struct {
	Person carrel.Person
	// Password is the Argon2id hash of the password, with its salt and costs; "" is none.
	Password string `json:",omitempty"`
	// Provider says that the person signs in at the identity provider. Issuer and Subject are how
	// the provider knows the person; "" until the first sign-in. Groups are the provider's, as of
	// the last sign-in, as far as they mean something here.
	Provider        bool     `json:",omitempty"`
	Issuer, Subject string   `json:",omitempty"`
	Groups          []string `json:",omitempty"`
}

// OrganisationRecord is the stored data of one organisation.
type OrganisationRecord struct {
	Organisation carrel.Organisation
	Members      []carrel.Member `json:",omitempty"`
}

// SessionKind says where the secret of a session may be shown.
type SessionKind string

// The kinds of sessions.
const (
	BrowserSession SessionKind = "browser" // in a cookie
	TokenSession   SessionKind = "token"   // in a header, as a key
)

// SessionRecord is the stored data of one sign-in. Like a key's, its secret is not stored.
type SessionRecord struct {
	ID      string
	Person  string // the person's ID
	Kind    SessionKind
	Label   string `json:",omitempty"`
	Sum     [32]byte
	Created time.Time
	Used    time.Time
	Expires time.Time
	Idle    time.Duration `json:",omitempty"` // ends it when it is not used as long; 0 is never
}

// Change is a set of writes that happen together or not at all. They are made in the order of the
// fields. So a record that one Change puts and deletes is gone. If it puts two records with one ID,
// the later one stays.
type Change struct {
	Put             []Record
	Delete          []carrel.ID
	PutSnapshots    []SnapshotRecord
	DeleteSnapshots []carrel.SnapshotID
	// Bury leaves tombstones for snapshots that have no record yet. The content of such a snapshot
	// is removed unless its record follows.
	Bury []carrel.SnapshotID

	PutProjects    []ProjectRecord
	DeleteProjects []string // by name
	PutKeys        []KeyRecord
	DeleteKeys     []string // by ID

	PutPeople           []PersonRecord
	DeletePeople        []string // by ID
	PutOrganisations    []OrganisationRecord
	DeleteOrganisations []string // by name
	PutSessions         []SessionRecord
	DeleteSessions      []string // by ID

	// DropUsage deletes pieces of usage, by ID, and PutUsage writes some.
	DropUsage []string
	PutUsage  []Usage
}

// Tombstones are the IDs of deleted records. Leftovers with these IDs may be removed, because a
// caller asked for the deletion. Leftovers without a record and without a tombstone must stay: the
// records themselves may be lost.
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

// ErrUnknown is part of an error of a write that may have happened or not: the store lost its
// database in the middle of it, or the caller's context ended. Without it, a write that has an error
// did not happen. Only package postgres says so; in the others, a context that ends leaves it open.
var ErrUnknown = errors.New("it is not known whether the write happened")

// Store keeps records and events. All methods are safe for concurrent use and return errors of kind
// NotFound, Exhausted (the disk), Unavailable (a database that does not answer) or Internal.
type Store interface {
	PutSandbox(ctx context.Context, r Record) error
	GetSandbox(ctx context.Context, id carrel.ID) (Record, error)
	// DeleteSandbox deletes a sandbox's record. Its events stay, so that its end can still be
	// reported. Idempotent.
	DeleteSandbox(ctx context.Context, id carrel.ID) error
	// Sandboxes returns all records, oldest first.
	Sandboxes(ctx context.Context) ([]Record, error)

	// Apply makes all writes of a change at once. After an error or a crash, none of them happened.
	// It is no error to delete a record that does not exist.
	Apply(ctx context.Context, c Change) error
	GetSnapshot(ctx context.Context, id carrel.SnapshotID) (SnapshotRecord, error)
	// Snapshots returns the records of all snapshots, oldest first.
	Snapshots(ctx context.Context) ([]SnapshotRecord, error)

	// Projects returns the records of all projects, and Keys those of all keys, oldest first.
	Projects(ctx context.Context) ([]ProjectRecord, error)
	Keys(ctx context.Context) ([]KeyRecord, error)
	// People, Organisations and Sessions return all their records, oldest first.
	People(ctx context.Context) ([]PersonRecord, error)
	Organisations(ctx context.Context) ([]OrganisationRecord, error)
	Sessions(ctx context.Context) ([]SessionRecord, error)

	UsageStore

	// Tombstones returns the IDs of records that were deleted, in no order. A record that is put
	// again has none.
	Tombstones(ctx context.Context) (Tombstones, error)
	// TrimTombstones forgets tombstones older than before.
	TrimTombstones(ctx context.Context, before time.Time) error

	// AppendEvent stores e and returns it with its sequence number, which is one more than the last
	// event's.
	AppendEvent(ctx context.Context, e carrel.Event) (carrel.Event, error)
	// Events returns at most limit events after seq, in order. An id of "" means all sandboxes.
	Events(ctx context.Context, id carrel.ID, after int64, limit int) ([]carrel.Event, error)
	// EventsBefore is Events backwards: at most limit events before seq, the newest first. A seq of
	// 0 means from the newest on.
	EventsBefore(ctx context.Context, id carrel.ID, seq int64, limit int) ([]carrel.Event, error)
	// TrimEvents deletes events older than before.
	TrimEvents(ctx context.Context, before time.Time) error
	Close() error
}
