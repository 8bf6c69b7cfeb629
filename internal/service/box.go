package service

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/state"
)

// box is one sandbox in the service's table, from its reservation until nothing
// of it is left.
type box struct {
	id  carrel.ID
	dir string
	// abort ends a creation under way; afterwards it does nothing.
	abort context.CancelCauseFunc
	// up is closed when it runs, gone when nothing of it is left.
	up, gone chan struct{}

	save sync.Mutex // orders changes of the record: held over the store's write

	mu      sync.Mutex
	rec     state.Record
	inst    driver.Instance
	conn    *guest.Conn
	ending  *ending  // under way; nil otherwise
	failed  *verdict // why it must end, after an ending that failed
	samples samples

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
	return copySandbox(b.rec.Sandbox)
}

// record returns a copy of the record.
func (b *box) record() state.Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.rec
	r.Sandbox = copySandbox(r.Sandbox)
	return r // Env and Handle are never changed in place
}

// copySandbox copies what a caller could change through a shared map or slice.
func copySandbox(sb carrel.Sandbox) carrel.Sandbox {
	sb.Metadata = maps.Clone(sb.Metadata)
	sb.Network.AllowOut = slices.Clone(sb.Network.AllowOut)
	sb.Network.DenyOut = slices.Clone(sb.Network.DenyOut)
	sb.Network.HTTPSPorts = slices.Clone(sb.Network.HTTPSPorts)
	return sb
}

func (b *box) closeConn() {
	b.mu.Lock()
	conn := b.conn
	b.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // only drops idle connections
	}
}

// Causes of an aborted creation.
var (
	errClosing = errors.New("the service is closing")
	errKilled  = errors.New("the sandbox was killed while it started")
)

// update changes the record of a running sandbox: on the disk first, then here.
func (s *Service) update(ctx context.Context, op string, b *box, change func(*state.Record)) (carrel.Sandbox, error) {
	b.save.Lock()
	defer b.save.Unlock()
	rec := b.record()
	if err := b.running(op); err != nil {
		return carrel.Sandbox{}, err
	}
	change(&rec)
	if err := s.opts.Store.PutSandbox(ctx, rec); err != nil {
		return carrel.Sandbox{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	st := b.rec.Sandbox.State // an end that began meanwhile goes on
	b.rec = rec
	b.rec.Sandbox.State = st
	if st != carrel.Running {
		return carrel.Sandbox{}, &carrel.Error{Op: op, Kind: carrel.NotFound, ID: b.id, Err: errors.New("the sandbox is ending")}
	}
	return copySandbox(rec.Sandbox), nil
}

// running returns an error unless the sandbox runs.
func (b *box) running(op string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.rec.Sandbox.State {
	case carrel.Running:
		return nil
	case carrel.Stopping:
		return &carrel.Error{Op: op, Kind: carrel.NotFound, ID: b.id, Err: errors.New("the sandbox is ending")}
	}
	return &carrel.Error{Op: op, Kind: carrel.Conflict, ID: b.id, Err: errors.New("the sandbox is still starting")}
}

// SetTimeout implements carrel.Sandboxes. A duration of 0 ends the sandbox now.
func (s *Service) SetTimeout(ctx context.Context, id carrel.ID, d time.Duration, extendOnly bool) (carrel.Sandbox, error) {
	const op = "set timeout"
	if err := s.checkTimeout(op, d); err != nil {
		return carrel.Sandbox{}, err
	}
	b, err := s.find(op, id)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	sb, err := s.update(ctx, op, b, func(r *state.Record) {
		ends := time.Now().Add(d).UTC().Round(0)
		if !extendOnly || ends.After(r.Sandbox.Ends) {
			r.Sandbox.Ends = ends
		}
	})
	if err != nil {
		return carrel.Sandbox{}, err
	}
	s.expiry.set(b, sb.Ends)
	return sb, nil
}

// SetNetwork replaces what may leave a running sandbox. Errors: NotFound, Invalid.
func (s *Service) SetNetwork(ctx context.Context, id carrel.ID, n carrel.Network) (carrel.Sandbox, error) {
	const op = "set network"
	if err := checkNetwork(op, n); err != nil {
		return carrel.Sandbox{}, err
	}
	b, err := s.find(op, id)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	sb, err := s.update(ctx, op, b, func(r *state.Record) {
		r.Sandbox.Network = copySandbox(carrel.Sandbox{Network: n}).Network
	})
	if err != nil {
		return carrel.Sandbox{}, err
	}
	return sb, s.applyNetwork(op, b)
}

// applyNetwork tells the wire a sandbox's rules. It reads them afresh, so that of
// two at once the last one's rules are the last to be applied.
func (s *Service) applyNetwork(op string, b *box) error {
	if s.opts.Networks == nil {
		return nil
	}
	b.save.Lock()
	defer b.save.Unlock()
	err := s.opts.Networks.SetNetwork(b.id, b.record().Sandbox.Network)
	if err == nil || errors.Is(err, carrel.NotFound) { // no link: nothing gets out at all
		return nil
	}
	return &carrel.Error{Op: op, ID: b.id, Kind: carrel.KindOf(err), Err: err}
}
