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
	"github.com/carrel-dev/carrel/internal/state"
)

// box is one sandbox in the service's table, from its reservation until nothing
// of it is left.
type box struct {
	id  carrel.ID
	dir string
	// name is what it is called by; its text is "" for nothing.
	name name
	// abort ends a creation under way; afterwards it does nothing.
	abort context.CancelCauseFunc
	// up is closed when it runs, gone when nothing of it is left.
	up, gone chan struct{}

	// turn holds a token while something changes the instance or takes a moment of it.
	turn chan struct{}
	save sync.Mutex // orders changes of the record: held over the store's write

	mu      sync.Mutex
	rec     state.Record
	egress  *policy.Policy  // compiled from rec's network, and changes with it; never nil
	inst    driver.Instance // nil while it is paused
	conn    *guest.Conn
	left    driver.Instance         // of before it was paused, where that could not be destroyed
	stop    context.CancelCauseFunc // ends what has the turn; nil when nobody has
	waking  *waking                 // the resumption under way
	ending  *ending                 // under way; nil otherwise
	undoing bool                    // its creation failed and removes it, which nobody else may do then
	failed  *verdict                // why it must end, after an ending that failed
	samples samples
	use     use

	roll   *roll // of the table that it is in; nil otherwise
	face   face  // under which it is there
	listed bool  // it is there

	due dueAt // the expiry's own; see there
}

// ending is one attempt to end a sandbox, which others may join.
type ending struct {
	done chan struct{}
	err  error // set before done is closed
}

// verdict is why a sandbox ends.
type verdict struct {
	reason  carrel.EndReason
	message string
}

// public returns a copy of the sandbox's public face.
func (b *box) public() carrel.Sandbox {
	b.mu.Lock()
	defer b.mu.Unlock()
	return publicSandbox(b.rec.Sandbox)
}

// publicSandbox is a copy for callers: without what is a secret from them too.
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

// copySandbox copies what a caller could change through a shared map or slice.
func copySandbox(sb carrel.Sandbox) carrel.Sandbox {
	sb.Metadata = maps.Clone(sb.Metadata)
	sb.Network = cloneNetwork(sb.Network)
	sb.Tokens = cloneTokens(sb.Tokens)
	sb.Lifecycle.Checkpoints.Before = slices.Clone(sb.Lifecycle.Checkpoints.Before)
	return sb
}

// rules returns what may leave the sandbox.
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

// openLocked is runningLocked for those who want in: what is still there, if only
// for a moment, is a conflict.
func (b *box) openLocked(op string) error {
	err := b.runningLocked(op)
	if e, ok := err.(*carrel.Error); ok {
		e.Kind = carrel.Conflict
	}
	return err
}
