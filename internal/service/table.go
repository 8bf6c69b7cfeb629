package service

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/carrel-dev/carrel/internal/quota"
	"github.com/carrel-dev/carrel/internal/state"
)

// table holds all sandboxes, and counts the places of those that may live. It also knows whether
// the service is closing, and counts the operations that must end before.
type table struct {
	opts *Options

	// ctx ends at Close. Every goroutine that spawn started must end with it.
	ctx    context.Context
	cancel context.CancelFunc
	// warn tells that soft limits of a project are passed.
	warn func(project string, hits []carrel.LimitHit)

	mu      sync.Mutex
	boxes   map[carrel.ID]*box
	roll    *roll              // the same sandboxes, by their properties
	names   map[name]carrel.ID // of those that have one
	live    int                // boxes that have an instance or are getting one
	book    *quota.Book        // what those hold
	ended   endings
	closing bool           // nothing new begins
	drained bool           // nothing may begin; set just before wg is waited for
	wg      sync.WaitGroup // Add is called under mu while drained is false
}

func newTable(ctx context.Context, o *Options) *table {
	t := &table{opts: o, boxes: map[carrel.ID]*box{}, roll: newRoll(), names: map[name]carrel.ID{}, book: quota.NewBook(),
		warn: func(string, []carrel.LimitHit) {}}
	t.ctx, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return t
}

// close stops new operations from beginning. It returns all sandboxes, and whether this is the
// first call.
func (t *table) close() (all []*box, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first = !t.closing
	t.closing = true
	return t.snapshotLocked(), first
}

// drain stops all goroutines and waits for them.
func (t *table) drain() {
	t.mu.Lock()
	t.drained = true
	t.mu.Unlock()
	t.cancel()
	t.wg.Wait()
}

// adopt puts an earlier service's sandbox into the table. lives says that it has an instance.
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
		b.mu.Lock()
		rec := b.rec
		b.mu.Unlock()
		t.book.Put(&b.charge, rec.Sandbox.Project, rec.KeyID, quota.LoadOf(rec.Sandbox))
	}
}

// remove removes an ended sandbox from the table. lived says that it had an instance.
func (t *table) remove(b *box, sb carrel.Sandbox, v verdict, lived bool) {
	b.strike()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(sb.ID)
	if lived {
		t.live--
	}
	t.book.Give(&b.charge)
	t.ended.add(sb.ID, sb.Project, v)
}

// noteEnd remembers the end of a sandbox that was never in this table.
func (t *table) noteEnd(sb carrel.Sandbox, v verdict) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended.add(sb.ID, sb.Project, v)
}

// places is how many more sandboxes may live. bounded is false when there is no limit.
func (t *table) places() (n int, bounded bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.opts.MaxSandboxes - t.live, t.opts.MaxSandboxes > 0
}

// spawn runs fn in a goroutine that Close waits for. It reports false, and starts nothing, when the
// service is closing.
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

// hold makes Close wait for the caller, who calls s.wg.Done. It reports false when it is too late.
// An operation that ends a sandbox may still begin while Close itself may end sandboxes.
func (t *table) hold() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.drained {
		t.wg.Add(1)
	}
	return !t.drained
}

// find returns a sandbox's box. For an ended sandbox, the error says how it ended, if that is still
// known.
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

// snapshotLocked lists the table. The caller holds mu.
func (t *table) snapshotLocked() []*box {
	all := make([]*box, 0, len(t.boxes))
	for _, b := range t.boxes {
		all = append(all, b)
	}
	return all
}

// awake lists the sandboxes that are not paused.
func (t *table) awake() []*box { return t.roll.all(orderKey{part: awake}) }

// boxOf finds a sandbox. It returns nil when the sandbox has gone.
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

// reserve takes a place for a new sandbox. It checks and takes in one step, so parallel creations
// never exceed a limit or a quota. On success, s.wg counts the creation.
func (t *table) reserve(p *plan, abort context.CancelCauseFunc) (*box, error) {
	id := p.rec.Sandbox.ID
	b := t.newBox(p.rec, p.egress, abort)
	bounds := t.quotasOf(p.rec)
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
	}
	soft, hit, after := t.chargeLocked(b, p.rec, bounds, 1)
	if hit != nil {
		t.mu.Unlock()
		return nil, t.errQuota(opCreate, p.rec, hit, after)
	}
	if b.name.text != "" {
		t.names[b.name] = id
	}
	t.boxes[id] = b
	t.live++
	t.wg.Add(1)
	t.mu.Unlock()
	b.enroll(t.roll)
	t.warn(p.rec.Sandbox.Project, soft)
	return b, nil
}

// unreserve frees the place again.
func (t *table) unreserve(b *box) {
	b.strike()
	t.mu.Lock()
	t.drop(b.id)
	t.live--
	t.book.Give(&b.charge)
	if sb := b.rec.Sandbox; sb.Build == "" { // neither changes
		t.book.Undo(sb.Project, b.rec.KeyID)
	}
	t.mu.Unlock()
	close(b.gone)
}

// full reports whether no more sandboxes may live.
func (t *table) full() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.opts.MaxSandboxes > 0 && t.live >= t.opts.MaxSandboxes
}

// admit takes a place for a paused sandbox among the living ones.
func (t *table) admit(op string, b *box) error {
	rec := b.record()
	bounds := t.quotasOf(rec)
	t.mu.Lock()
	if most := t.opts.MaxSandboxes; most > 0 && t.live >= most {
		t.mu.Unlock()
		return t.errFull(op)
	}
	soft, hit, after := t.chargeLocked(b, rec, bounds, 0)
	if hit == nil {
		t.live++
	}
	t.mu.Unlock()
	if hit != nil {
		return t.errQuota(op, rec, hit, after)
	}
	t.warn(rec.Sandbox.Project, soft)
	return nil
}

// leave frees the place of a sandbox that has no instance any more.
func (t *table) leave(b *box) {
	t.mu.Lock()
	t.live--
	t.book.Give(&b.charge)
	t.mu.Unlock()
}

// paused counts the sandboxes without an instance.
func (t *table) paused() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.boxes) - t.live
}

// errFull is the error when no more sandboxes may live.
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

// take waits until it gets a sandbox's turn. The returned context ends with ctx, with an end of the
// sandbox, or with the service. release gives the turn back.
func (t *table) take(ctx context.Context, op string, b *box) (_ context.Context, release func(), err error) {
	if !t.hold() {
		return nil, nil, &carrel.Error{Op: op, Kind: carrel.Unavailable, ID: b.id, Err: errClosing}
	}
	wait, cancel := waitForTurn(ctx)
	defer cancel()
	select {
	case b.turn <- struct{}{}:
	case <-wait.Done():
		t.wg.Done()
		return nil, nil, &carrel.Error{Op: op, Kind: carrel.TimedOut, ID: b.id, Err: context.Cause(wait)}
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
