package service

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/carrel-dev/carrel/internal/quota"
	"github.com/carrel-dev/carrel/internal/state"
)

// box is one sandbox in the service's table. It exists from its reservation until everything of the
// sandbox is removed.
type box struct {
	id  carrel.ID
	dir string
	// name is the sandbox's name. Its text is "" for a sandbox without a name.
	name name
	// abort ends a creation under way. After the creation it does nothing.
	abort context.CancelCauseFunc
	// up is closed when the sandbox runs. gone is closed when everything of it is removed.
	up, gone chan struct{}

	// turn holds a token while an operation changes the instance or takes a snapshot of it.
	turn chan struct{}
	save sync.Mutex // orders changes of the record; held during the store's write

	mu      sync.Mutex
	rec     state.Record
	egress  *policy.Policy  // compiled from rec's network, replaced with it; never nil
	inst    driver.Instance // nil while it is paused
	conn    *guest.Conn
	left    driver.Instance         // the instance before a pause, if it could not be destroyed
	stop    context.CancelCauseFunc // stops the operation that holds turn; nil if none does
	waking  *waking                 // the resumption under way
	ending  *ending                 // under way; nil otherwise
	undoing bool                    // the failed creation removes it; nobody else may
	failed  *verdict                // why it must end, after a failed attempt to end it
	release *handover               // set once it is to be released, or is; nil otherwise
	samples samples
	use     use

	roll   *roll // the roll of its table; nil outside the table
	face   face  // under which it is there
	listed bool  // it is there

	charge quota.Charge // what it is charged for; table.mu guards it

	due dueAt // the expiry's own; see there
}

// ending is one attempt to end a sandbox, which others may join.
type ending struct {
	done chan struct{}
	err  error // set before done is closed
}

// verdict is the reason why a sandbox ends.
type verdict struct {
	reason  carrel.EndReason
	message string
}

// handover makes the end of a sandbox a release: it goes on on another machine. The end calls
// before when the instance has ended and the record is still there, and after when the record is
// gone.
type handover struct {
	before func(ctx context.Context) error
	after  func(ctx context.Context)
}

// public returns a copy of the sandbox for callers.
func (b *box) public() carrel.Sandbox {
	b.mu.Lock()
	defer b.mu.Unlock()
	return publicSandbox(b.rec.Sandbox)
}

// publicSandbox copies a sandbox for callers, without the secrets that callers must not see.
func publicSandbox(sb carrel.Sandbox) carrel.Sandbox {
	sb = copySandbox(sb)
	if p := sb.Network.EgressProxy; p != nil {
		p.Password = ""
	}
	return sb
}

// record returns a copy of the record.
func (b *box) record() state.Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.recordLocked()
}

// recordLocked is record, called with mu held.
func (b *box) recordLocked() state.Record {
	r := b.rec
	r.Sandbox = copySandbox(r.Sandbox)
	return r // Env and Handle are never changed in place
}

// copySandbox copies a sandbox with its maps and slices, so that a caller can't change the
// original.
func copySandbox(sb carrel.Sandbox) carrel.Sandbox {
	sb.Metadata = maps.Clone(sb.Metadata)
	sb.Network = cloneNetwork(sb.Network)
	sb.Tokens = cloneTokens(sb.Tokens)
	sb.Lifecycle.Checkpoints.Before = slices.Clone(sb.Lifecycle.Checkpoints.Before)
	return sb
}

// rules returns the sandbox's network policy.
func (b *box) rules() *policy.Policy {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.egress
}

// guest returns the connection to the guest; nil without one.
func (b *box) guest() *guest.Conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.conn
}

func (b *box) closeConn() {
	if conn := b.guest(); conn != nil {
		_ = conn.Close() // only drops idle connections
	}
}

// Causes of an aborted creation.
var (
	errClosing = errors.New("the service is closing")
	errKilled  = errors.New("the sandbox was killed while it started")
)

// running returns an error unless the sandbox runs.
func (b *box) running(op string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.runningLocked(op)
}

// runningLocked is running with mu held.
func (b *box) runningLocked(op string) error {
	e := &carrel.Error{Op: op, Kind: carrel.Conflict, ID: b.id}
	switch b.rec.Sandbox.State {
	case carrel.Running:
		return nil
	case carrel.Stopping:
		e.Kind, e.Err = carrel.NotFound, errors.New("the sandbox is ending")
	case carrel.Paused:
		e.Err, e.Hint = errors.New("the sandbox is paused"), "resume it first: carrel resume "+string(b.id)
	case carrel.Pausing, carrel.Resuming:
		e.Err, e.Hint = fmt.Errorf("the sandbox is %s", b.rec.Sandbox.State), "try again in a moment"
	default:
		e.Err = errors.New("the sandbox is still starting")
	}
	return e
}

// openLocked is runningLocked for requests that want to enter the sandbox. A sandbox that still
// exists gives Conflict, even while it ends.
func (b *box) openLocked(op string) error {
	err := b.runningLocked(op)
	if e, ok := err.(*carrel.Error); ok {
		e.Kind = carrel.Conflict
	}
	return err
}
