// Package state is the contract of the durable records: what the service writes
// down so that nothing acknowledged is lost when the daemon dies.
//
// Package sqlite implements it on a file, package memory without one. A write
// has reached the disk when the method returns.
package state

import (
	"context"
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
	Owner   string            // the API key's name
}

// Store keeps records and events. All methods are safe for concurrent use and
// return errors of kind NotFound or Internal.
type Store interface {
	PutSandbox(ctx context.Context, r Record) error
	GetSandbox(ctx context.Context, id carrel.ID) (Record, error)
	// DeleteSandbox forgets a sandbox. Its events stay, so that its end can be told
	// afterwards. Idempotent.
	DeleteSandbox(ctx context.Context, id carrel.ID) error
	// Sandboxes returns all records, oldest first.
	Sandboxes(ctx context.Context) ([]Record, error)

	// AppendEvent stores e and returns it with its sequence number, which rises by
	// one from event to event.
	AppendEvent(ctx context.Context, e carrel.Event) (carrel.Event, error)
	// Events returns at most limit events after seq, in order; id "" means all sandboxes.
	Events(ctx context.Context, id carrel.ID, after int64, limit int) ([]carrel.Event, error)
	// TrimEvents forgets events older than before.
	TrimEvents(ctx context.Context, before time.Time) error
	Close() error
}
