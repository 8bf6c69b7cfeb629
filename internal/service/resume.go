package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/cleanup"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/failpoint"
	"github.com/carrel-dev/carrel/internal/snapshot"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/trace"
)

const opResume = "resume sandbox"

// waking is a resumption under way, which others may join.
type waking struct {
	done chan struct{}
	err  error // set before done is closed

	// Guarded by box.mu:
	cancel   context.CancelFunc
	admitted bool // it is past the gate
	waiters  int
}

// Resume implements carrel.Moments.
func (s *Service) Resume(ctx context.Context, id carrel.ID, o carrel.ResumeOptions) (carrel.Sandbox, bool, error) {
	return s.bringBack(ctx, id, comeback{ResumeOptions: o})
}

// comeback says how a sandbox comes back.
type comeback struct {
	carrel.ResumeOptions
	// least is how long it stays at least, whatever timeout it last had.
	least time.Duration
	// from is the snapshot, opened already; nil opens the one that the record names.
	from *origin
	// admitted is called when its turn has come; may be nil.
	admitted func()
}

// bringBack resumes a sandbox, or extends the timeout of one that runs.
func (s *Service) bringBack(ctx context.Context, id carrel.ID, o comeback) (carrel.Sandbox, bool, error) {
	if err := s.checkTimeout(opResume, o.Timeout); err != nil {
		return carrel.Sandbox{}, false, err
	}
	b, err := s.find(opResume, id)
	if err != nil {
		return carrel.Sandbox{}, false, err
	}
	resumed := false
	for {
		b.mu.Lock()
		st, w := b.rec.Sandbox.State, b.waking
		if st == carrel.Paused && w == nil {
			w = &waking{done: make(chan struct{})}
			var wctx context.Context
			wctx, w.cancel = context.WithCancel(trace.Carry(context.WithoutCancel(s.ctx), ctx))
			if !s.spawn(func() { s.wake(wctx, b, w, o) }) {
				b.mu.Unlock()
				w.cancel()
				return carrel.Sandbox{}, false, &carrel.Error{Op: opResume, Kind: carrel.Unavailable, ID: id, Err: errClosing}
			}
			b.waking = w
		}
		if w != nil {
			w.waiters++
		}
		b.mu.Unlock()
		switch {
		case st == carrel.Running:
			sb, err := s.extend(ctx, b, o.Timeout)
			if carrel.KindOf(err) == carrel.Conflict {
				continue // it was paused again a moment ago
			}
			return sb, resumed, err
		case w != nil:
			if err := b.awaken(ctx, w); err != nil {
				return carrel.Sandbox{}, false, err
			}
			resumed = true
		case st == carrel.Pausing || st == carrel.Resuming: // a pause, or a rollback
			if err := b.settled(ctx); err != nil {
				return carrel.Sandbox{}, false, &carrel.Error{Op: opResume, Kind: carrel.TimedOut, ID: id, Err: err}
			}
		default:
			return carrel.Sandbox{}, false, b.running(opResume)
		}
	}
}

// awaken waits for the end of a resumption. Who stops waiting does not stop it, unless
// nobody else waits and its turn has not come yet: the machine has better things to do.
func (b *box) awaken(ctx context.Context, w *waking) error {
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.waiters--; w.waiters == 0 && !w.admitted {
		w.cancel()
		if b.waking == w { // who comes now begins another
			b.waking = nil
		}
	}
	return &carrel.Error{Op: opResume, Kind: carrel.TimedOut, ID: b.id, Err: context.Cause(ctx)}
}

// extend moves the end of a running sandbox away, never nearer.
func (s *Service) extend(ctx context.Context, b *box, d time.Duration) (carrel.Sandbox, error) {
	if d == 0 {
		return b.public(), nil
	}
	return s.SetTimeout(ctx, b.id, d, true)
}

// wake brings a paused sandbox back, for all who wait.
func (s *Service) wake(ctx context.Context, b *box, w *waking, o comeback) {
	defer w.cancel()
	o.admitted = func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		w.admitted = true
	}
	tctx, span := s.opts.Traces.Begin(ctx, "resume", b.id)
	ctx, release, err := s.take(tctx, opResume, b)
	if err == nil {
		if b.public().State == carrel.Paused {
			err = s.resume(ctx, b, o)
		}
		if err != nil {
			err = b.momentError(ctx, opResume, err)
		}
		release()
	}
	span.EndWith(err)
	if err != nil {
		s.log.Warn("resume sandbox", "sandbox", b.id, "err", err)
	}
	b.mu.Lock()
	if b.waking == w {
		b.waking = nil
	}
	b.mu.Unlock()
	w.err = err
	close(w.done)
}

// resume takes a paused sandbox to running, or leaves it paused. The caller has the
// turn.
func (s *Service) resume(ctx context.Context, b *box, o comeback) (err error) {
	ctx, pass, err := s.enterWake(ctx, opResume, b)
	if err != nil {
		return err
	}
	defer func() { pass.Done(err) }()
	if o.admitted != nil {
		o.admitted()
	}
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, s.opts.StartTimeout, fmt.Errorf("the sandbox did not resume within %v", s.opts.StartTimeout))
	defer cancel()
	var undo cleanup.Stack
	defer undo.Run()
	if !s.admit() {
		return s.errFull(opResume)
	}
	undo.Add(func() { s.count(-1) })
	if !b.setState(carrel.Paused, carrel.Resuming) {
		return b.running(opResume)
	}
	undo.Add(func() { b.setState(carrel.Resuming, carrel.Paused) })
	if err := b.clearLeft(ctx); err != nil {
		return err
	}
	rec := b.record()
	from := o.from.share()
	if from == nil {
		span := trace.Mark(ctx, "open snapshot")
		from, err = s.open(ctx, rec.Paused, o.FilesOnly, false)
		span.EndWith(err)
		if err != nil {
			return err
		}
	}
	undo.Add(from.release)
	if err := failpoint.Hit(pointOpened); err != nil {
		return err
	}
	drv, root, err := s.home(ctx, rec)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return fmt.Errorf("make the sandbox's directory: %w", err)
	}
	undo.Add(func() { _ = os.RemoveAll(b.dir) })
	inst, line, err := s.stand(ctx, b, drv, root, from)
	if err != nil {
		return err
	}
	undo.Add(func() { s.destroy(b, inst) })
	undo.Add(line.hangUp)
	b.mu.Lock()
	b.inst, b.conn = inst, line.conn(rec.Sandbox)
	b.use.met = false
	b.rec.Sandbox.Generation++
	b.mu.Unlock()
	undo.Add(b.disown)
	if err := s.settleIn(ctx, b, line, from); err != nil {
		return err
	}
	if line.pour {
		if err := s.pour(ctx, b, from); err != nil {
			return err
		}
	}
	if err := s.recordRunning(ctx, b, inst, o); err != nil {
		return err
	}
	undo.Release()
	_ = failpoint.Hit(pointResumed)
	s.follow(b, inst, from)
	if from.boots() && len(rec.Start) > 0 {
		s.spawn(func() { s.startCommand(b, rec.Start) })
	}
	took := time.Since(began).Round(time.Millisecond)
	s.spawn(func() {
		s.tell(carrel.Event{Type: eventResumed, ID: b.id, Message: fmt.Sprintf("resumed from snapshot %s in %v", from.id, took),
			Fields: map[string]string{"snapshot": string(from.id)}})
	})
	return nil
}

// disown takes back what a resumption gave the box that failed later.
func (b *box) disown() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil {
		_ = b.conn.Close()
	}
	b.inst, b.conn = nil, nil
	b.rec.Sandbox.Generation--
}

// admit takes a place among the sandboxes that live.
func (s *Service) admit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if most := s.opts.MaxSandboxes; most > 0 && s.live >= most {
		return false
	}
	s.live++
	return true
}

// settleIn applies a new instance's rules, gives its guest the identity, and waits
// for the verdict on its snapshot: nothing goes on before all of that.
func (s *Service) settleIn(ctx context.Context, b *box, line *line, from *origin) error {
	if err := failpoint.Hit(pointRestored); err != nil {
		return err
	}
	checked := make(chan error, 1)
	go func() {
		span := trace.Mark(ctx, "check content")
		err := from.check(ctx)
		span.EndWith(err)
		checked <- err
	}()
	err := s.applyNetwork(opResume, b)
	if err == nil {
		err = s.greet(ctx, b, line)
	}
	if verr := <-checked; verr != nil {
		return verr // damage explains whatever else went wrong
	}
	if err != nil {
		return err
	}
	return failpoint.Hit(pointGreeted)
}

// recordRunning writes that a sandbox runs again.
func (s *Service) recordRunning(ctx context.Context, b *box, inst driver.Instance, o comeback) error {
	b.save.Lock()
	defer b.save.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	rec := b.record()
	if o.Timeout > 0 {
		rec.Timeout = o.Timeout
	}
	ttl := rec.Timeout
	if ttl <= 0 {
		ttl = s.opts.DefaultTimeout
	}
	ttl = max(ttl, min(o.least, s.opts.MaxTimeout))
	ends := time.Now().Add(ttl).UTC().Round(0)
	if rec.Wake && rec.Sandbox.Ends.After(time.Now()) {
		ends = rec.Sandbox.Ends // a rollback changes nothing about it
	}
	rec.Sandbox.State, rec.Sandbox.Ends = carrel.Running, ends
	rec.Sandbox.Snapshot = rec.Paused
	rec.Paused, rec.Wake, rec.Sound, rec.Handle = "", false, false, inst.Handle()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime) // written or not, nothing in between
	defer cancel()
	if err := s.putSandbox(ctx, rec); err != nil {
		s.takeBack(ctx, b, nil)
		return err
	}
	b.mu.Lock()
	b.rec = rec
	b.use.last = time.Now()
	b.mu.Unlock()
	s.expiry.set(b, ends)
	return nil
}

// takeBack writes a record as it was before a write that failed: a disk that errs may
// have taken it all the same, and then the next service would believe it. The caller
// holds box.save.
func (s *Service) takeBack(ctx context.Context, b *box, put []state.SnapshotRecord) {
	rec, ok := b.durable()
	if !ok {
		return // its end deletes the record
	}
	c := state.Change{Put: []state.Record{rec}}
	for _, sr := range put {
		c.DeleteSnapshots = append(c.DeleteSnapshots, sr.Snapshot.ID)
	}
	if err := s.apply(ctx, c); err != nil {
		s.log.Error("take back a record that could not be written", "sandbox", b.id, "err", err)
	}
}

// origin is the snapshot that an instance is made from.
type origin struct {
	id        carrel.SnapshotID
	files     snapshot.Files
	info      driver.SnapshotInfo
	filesOnly bool
	later     time.Duration // see driver.RestoreOptions
	verify    func(ctx context.Context) error
	users     *users
	once      *sync.Once // of this user's release
}

// users counts who uses an open snapshot.
type users struct {
	n     atomic.Int32
	close func()
}

// share is for another user, who releases it in turn; nil, for no snapshot, stays nil.
func (o *origin) share() *origin {
	if o == nil {
		return nil
	}
	o.users.n.Add(1)
	c := *o
	c.once = &sync.Once{}
	return &c
}

// release lets go of it; idempotent.
func (o *origin) release() {
	o.once.Do(func() {
		if o.users.n.Add(-1) == 0 {
			o.users.close()
		}
	})
}

// check verifies the content, where there is any.
func (o *origin) check(ctx context.Context) error {
	if o == nil {
		return nil
	}
	return o.verify(ctx)
}

// boots reports whether a sandbox made from it boots afresh, and does not go on.
func (o *origin) boots() bool { return o == nil || o.filesOnly || !o.info.Memory }

// open gets a snapshot's content ready. A foreign one is another machine's and not
// in the index.
func (s *Service) open(ctx context.Context, id carrel.SnapshotID, filesOnly, foreign bool) (*origin, error) {
	if s.opts.Snapshots == nil {
		return nil, &carrel.Error{Kind: carrel.Unsupported, Err: errNoSnapshots}
	}
	drop, ok := s.snaps.hold(id)
	switch {
	case ok:
	case foreign:
		drop = func() {}
	default:
		return nil, &carrel.Error{Kind: carrel.NotFound, Field: "snapshotID", Err: fmt.Errorf("snapshot %s is gone", id)}
	}
	files, err := s.opts.Snapshots.Open(ctx, id)
	if err != nil {
		drop()
		return nil, err
	}
	o := &origin{id: id, files: files, info: files.Manifest().Info, filesOnly: filesOnly, verify: files.Verify,
		users: &users{close: func() { _ = files.Close(); drop() }}, once: &sync.Once{}}
	o.users.n.Store(1)
	return o, nil
}

// home finds the driver and the root image of a record.
func (s *Service) home(ctx context.Context, rec state.Record) (driver.Driver, driver.Root, error) {
	drv, err := s.opts.Drivers.Get(rec.Sandbox.Tier)
	if err != nil {
		return nil, driver.Root{}, err
	}
	if err := s.probe(ctx, drv); err != nil {
		return nil, driver.Root{}, err
	}
	if path, ok := s.rootPath(rec.Root); ok {
		return drv, driver.Root{Image: path}, nil
	}
	img, err := s.opts.Images.Get(ctx, rec.Sandbox.Template)
	if errors.Is(err, carrel.NotFound) && rec.Sandbox.Alias != "" {
		img, err = s.opts.Images.Get(ctx, rec.Sandbox.Alias)
	}
	if err != nil {
		return nil, driver.Root{}, &carrel.Error{Kind: carrel.KindOf(err), Field: "templateID",
			Err:  fmt.Errorf("its template %s (%s) is not on this machine: %w", rec.Sandbox.Template, rec.Sandbox.Alias, err),
			Hint: "import or pull the same image here under that name"}
	}
	return drv, driver.Root{Image: img.Path}, nil
}

// restorer is the part of a driver that restores snapshots.
func restorer(drv driver.Driver) (driver.Restorer, error) {
	r, ok := driver.As[driver.Restorer](drv)
	if !ok {
		return nil, &carrel.Error{Kind: carrel.Unsupported, Err: fmt.Errorf("tier %s has no snapshots", drv.Info().Tier)}
	}
	return r, nil
}

// stand has a driver build an instance, from nothing when from is nil.
func (s *Service) stand(ctx context.Context, b *box, drv driver.Driver, root driver.Root, from *origin) (driver.Instance, *line, error) {
	spec := driver.Spec{ID: b.id, Root: root, Guest: s.guestImage(b, from), Dir: b.dir, Limits: b.public().Limits}
	ctx, span := trace.Start(ctx, "driver")
	defer span.End()
	span.Set("driver", drv.Info().Name)
	var inst driver.Instance
	var err error
	foreign := from != nil && from.info.Driver != drv.Info().Name
	if from == nil || foreign {
		inst, err = drv.Create(ctx, spec)
	} else {
		r, err := restorer(drv)
		if err != nil {
			return nil, nil, err
		}
		opts := driver.RestoreOptions{FilesOnly: from.filesOnly, Later: from.later}
		if err := r.CanRestore(from.info, opts); err != nil {
			return nil, nil, err
		}
		if inst, err = r.Restore(ctx, from.files.Dir(), from.info, spec, opts); err != nil {
			return nil, nil, err
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return inst, &line{inst: inst, fresh: from.boots(), restored: !from.boots(), pour: foreign}, nil
}

// guestImage chooses the guest's image and notes it: this build's own for what boots,
// and for what goes on the one that it was running, which lies beside it.
func (s *Service) guestImage(b *box, from *origin) string {
	own := s.opts.GuestImage
	b.mu.Lock()
	defer b.mu.Unlock()
	if name := b.rec.Guest; !from.boots() && name != "" && name == filepath.Base(name) {
		old := filepath.Join(filepath.Dir(own), name)
		if _, err := os.Stat(old); err == nil {
			return old
		}
	}
	b.rec.Guest = filepath.Base(own)
	return own
}

// follow watches a new instance, and lets go of the snapshot it was made from when
// all of it has been read.
func (s *Service) follow(b *box, inst driver.Instance, from *origin) {
	s.spawn(func() { s.watch(b, inst) })
	s.letGo(b.id, inst, from)
}

// letGo releases the snapshot that an instance was made from when all of it has been read.
func (s *Service) letGo(id carrel.ID, inst driver.Instance, from *origin) {
	if from == nil {
		return
	}
	l, ok := driver.As[driver.Loader](inst)
	if !ok || !s.spawn(func() {
		defer from.release()
		if err := l.Loaded(s.ctx); err != nil && s.ctx.Err() == nil && !errors.Is(err, carrel.Unavailable) { // it ended before
			s.log.Error("read the rest of a snapshot", "sandbox", id, "snapshot", from.id, "err", err)
		}
	}) {
		from.release()
	}
}
