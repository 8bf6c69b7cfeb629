package service

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/carrel-dev/carrel/internal/state"
)

// table is the sandboxes there are and the places among those that may live. It also knows
// how far the service is from its end: what begins is counted here.
type table struct {
	opts *Options

	// ctx ends at Close; every goroutine that spawn started ends with it.
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	boxes   map[carrel.ID]*box
	roll    *roll              // the same, by what is asked for
	names   map[name]carrel.ID // of those that have one
	live    int                // boxes that have an instance, or are getting one
	ended   endings
	closing bool           // nothing new begins
	drained bool           // nothing at all begins: set right before wg is waited for
	wg      sync.WaitGroup // Add is called under mu while drained is false
}

func newTable(ctx context.Context, o *Options) *table {
	t := &table{opts: o, boxes: map[carrel.ID]*box{}, roll: newRoll(), names: map[name]carrel.ID{}}
	t.ctx, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return t
}

// close has nothing new begin. It returns all sandboxes, and whether it is the first call.
func (t *table) close() (all []*box, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first = !t.closing
	t.closing = true
	return t.snapshotLocked(), first
}

// drain ends all goroutines and waits for them.
func (t *table) drain() {
	t.mu.Lock()
	t.drained = true
	t.mu.Unlock()
	t.cancel()
	t.wg.Wait()
}

// adopt puts a sandbox into the table that an earlier service left. lives says that it has an
// instance.
func (t *table) adopt(b *box, lives bool) {
	b.enroll(t.roll)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.boxes[b.id] = b
	if b.name.text != "" {
		t.names[b.name] = b.id
	}
	if lives {
		t.live++
	}
}

// remove takes a sandbox out of the table that has ended. lived says that it had an
// instance.
func (t *table) remove(b *box, sb carrel.Sandbox, v verdict, lived bool) {
	b.strike()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(sb.ID)
	if lived {
		t.live--
	}
	t.ended.add(sb.ID, sb.Project, v)
}

// noteEnd remembers how a sandbox ended that was never in this table.
func (t *table) noteEnd(sb carrel.Sandbox, v verdict) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended.add(sb.ID, sb.Project, v)
}

// places is how many more may live; bounded is false where any number may.
func (t *table) places() (n int, bounded bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.opts.MaxSandboxes - t.live, t.opts.MaxSandboxes > 0
}

// spawn runs fn in a goroutine that Close waits for, and reports whether it did:
// a closing service starts nothing.
func (t *table) spawn(fn func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closing {
		return false
	}
	t.wg.Add(1)
	go func() {
		defer t.wg.Done()
		fn()
	}()
	return true
}

// hold makes Close wait for the caller, who calls s.wg.Done, and reports whether
// it is still time for that. What ends a sandbox may begin as long as Close itself
// may end some.
func (t *table) hold() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.drained {
		t.wg.Add(1)
	}
	return !t.drained
}

// find returns a sandbox's box. Its error says how the sandbox ended, where that
// is still known.
func (t *table) find(op string, id carrel.ID) (*box, error) {
	if _, err := carrel.ParseID(string(id)); err != nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.NotFound, Err: err}
	}
	t.mu.Lock()
	b, ok := t.boxes[id]
	e, known := t.ended.get(id)
	t.mu.Unlock()
	if ok {
		return b, nil
	}
	err := &carrel.Error{Op: op, Kind: carrel.NotFound, ID: id, Err: errors.New("no such sandbox")}
	if known {
		err.Err = fmt.Errorf("the sandbox ended (%s): %s", e.reason, e.message)
	}
	return nil, err
}

func (t *table) snapshot() []*box {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.snapshotLocked()
}

// snapshotLocked lists the table. Called with mu held.
func (t *table) snapshotLocked() []*box {
	all := make([]*box, 0, len(t.boxes))
	for _, b := range t.boxes {
		all = append(all, b)
	}
	return all
}

// awake lists the sandboxes that are not paused.
func (t *table) awake() []*box { return t.roll.all(orderKey{part: awake}) }

// boxOf finds a sandbox; nil when it has gone.
func (t *table) boxOf(id carrel.ID) *box {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.boxes[id]
}

// newBox returns a box for a record. egress is compiled from the record's network.
func (t *table) newBox(rec state.Record, egress *policy.Policy, abort context.CancelCauseFunc) *box {
	id := rec.Sandbox.ID
	return &box{id: id, dir: filepath.Join(t.opts.Dir, string(id)), abort: abort, turn: make(chan struct{}, 1),
		up: make(chan struct{}), gone: make(chan struct{}), name: nameOf(rec.Sandbox), rec: rec, egress: egress}
}

// reserve takes a place for a new sandbox. The check and the taking are one step,
// so parallel creations never exceed the quota. On success s.wg counts it.
func (t *table) reserve(p *plan, abort context.CancelCauseFunc) (*box, error) {
	id := p.rec.Sandbox.ID
	b := t.newBox(p.rec, p.egress, abort)
	t.mu.Lock()
	if t.closing {
		t.mu.Unlock()
		return nil, &carrel.Error{Op: opCreate, Kind: carrel.Unavailable, Err: errClosing}
	}
	if most := t.opts.MaxSandboxes; most > 0 && t.live >= most {
		t.mu.Unlock()
		return nil, t.errFull(opCreate)
	}
	if b.name.text != "" {
		if other, taken := t.names[b.name]; taken {
			t.mu.Unlock()
			return nil, errNamed(b.name.text, other)
		}
		t.names[b.name] = id
	}
	t.boxes[id] = b
	t.live++
	t.wg.Add(1)
	t.mu.Unlock()
	b.enroll(t.roll)
	return b, nil
}

// unreserve gives the place back.
func (t *table) unreserve(b *box) {
	b.strike()
	t.mu.Lock()
	t.drop(b.id)
	t.live--
	t.mu.Unlock()
	close(b.gone)
}

// full reports whether as many sandboxes live as may.
func (t *table) full() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.opts.MaxSandboxes > 0 && t.live >= t.opts.MaxSandboxes
}

// admit takes a place among the sandboxes that live.
func (t *table) admit() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if most := t.opts.MaxSandboxes; most > 0 && t.live >= most {
		return false
	}
	t.live++
	return true
}

// count counts the sandboxes that have an instance.
func (t *table) count(d int) {
	t.mu.Lock()
	t.live += d
	t.mu.Unlock()
}

// paused counts those that have none.
func (t *table) paused() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.boxes) - t.live
}

// errFull is the answer when no more sandboxes may live.
func (t *table) errFull(op string) error {
	return &carrel.Error{Op: op, Kind: carrel.Exhausted,
		Err:  fmt.Errorf("all %d sandboxes that may live at once do", t.opts.MaxSandboxes),
		Hint: "kill or pause some, wait for their timeouts, or raise the limit (carrel serve --max-sandboxes)"}
}

// isClosing reports whether Close has begun.
func (t *table) isClosing() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closing
}

// take gets the turn of a sandbox, once those before have ended. The context that
// it returns ends with ctx, with an end of the sandbox, and with the service; the
// turn is over with release.
func (t *table) take(ctx context.Context, op string, b *box) (_ context.Context, release func(), err error) {
	if !t.hold() {
		return nil, nil, &carrel.Error{Op: op, Kind: carrel.Unavailable, ID: b.id, Err: errClosing}
	}
	select {
	case b.turn <- struct{}{}:
	case <-ctx.Done():
		t.wg.Done()
		return nil, nil, &carrel.Error{Op: op, Kind: carrel.TimedOut, ID: b.id, Err: context.Cause(ctx)}
	}
	ctx, stop := context.WithCancelCause(ctx)
	b.mu.Lock()
	b.stop = stop
	b.mu.Unlock()
	if t.isClosing() {
		stop(errClosing)
	}
	return ctx, func() {
		b.mu.Lock()
		b.stop = nil
		b.mu.Unlock()
		stop(nil)
		<-b.turn
		t.wg.Done()
	}, nil
}
