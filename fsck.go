package carrel

import (
	"context"
	"time"
)

// Checks finds things that a service holds and has no record of. Records can be lost by damage or
// by mistake. A service then keeps the content and the sandboxes that it finds, and lists them
// here. It removes them only on request, or after they have been unclaimed for a long time. Only
// administrators may call these methods: others are Forbidden.
type Checks interface {
	// Unclaimed lists everything that has no record, in the order of IDs.
	Unclaimed(ctx context.Context) ([]Unclaimed, error)
	// Reclaim makes the record of a snapshot again. The data for it are in the snapshot itself. If
	// the snapshot is the pause of a sandbox that has no record either, the sandbox exists again,
	// and is paused. Errors: NotFound, Unsupported (a running sandbox), Invalid (damage).
	Reclaim(ctx context.Context, id string) error
	// Discard deletes the content of a snapshot, or ends a sandbox. Errors: NotFound, Conflict.
	Discard(ctx context.Context, id string) error
}

// UnclaimedKind is the kind of a thing that has no record.
type UnclaimedKind string

// The kinds of things that can have lost their record.
const (
	UnclaimedSnapshot UnclaimedKind = "snapshot" // the content of a snapshot
	UnclaimedSandbox  UnclaimedKind = "sandbox"  // a running sandbox, or the files of one
)

// Unclaimed is a thing without a record.
type Unclaimed struct {
	ID   string        `json:"id"` // of the snapshot or of the sandbox
	Kind UnclaimedKind `json:"kind"`
	// The fields up to Size are known of a snapshot only.
	Sandbox ID        `json:"sandboxID,omitempty"`
	Project string    `json:"project,omitempty"`
	Tier    Tier      `json:"tier,omitempty"`
	Cause   Cause     `json:"cause,omitempty"`
	Created time.Time `json:"created,omitzero"`
	Size    int64     `json:"size,omitempty"` // bytes of its files

	Found   time.Time `json:"found"`   // by the first service that had no record of it
	Expires time.Time `json:"expires"` // when it is removed unless somebody reclaims it
	Reason  string    `json:"reason"`
	// Problem says why it can't be reclaimed; "" if it can.
	Problem string `json:"problem,omitempty"`
}

// NoChecks finds nothing.
type NoChecks struct{}

// Unclaimed implements Checks.
func (NoChecks) Unclaimed(context.Context) ([]Unclaimed, error) {
	return nil, lacking("list unclaimed things", noChecks)
}

// Reclaim implements Checks.
func (NoChecks) Reclaim(context.Context, string) error { return lacking("reclaim", noChecks) }

// Discard implements Checks.
func (NoChecks) Discard(context.Context, string) error { return lacking("discard", noChecks) }

const noChecks = "search for things without a record"
