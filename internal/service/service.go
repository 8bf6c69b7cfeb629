// Package service is the one owner of every sandbox's state: it makes sandboxes,
// finds them, ends them, and remembers all of it.
//
// # Lifecycle
//
// Create reserves a place, writes a record (state starting), has a driver build
// the walls, gives the guest its identity and writes the record again (running,
// with the driver's handle). Only then is it acknowledged; a step that fails
// undoes the ones before it. A sandbox ends because someone kills it, because its
// timeout passes, or by itself; each end runs once, whoever asks, and is an event
// with its reason. A new Service on an old store adopts what still runs, under
// the same ID, tokens and deadline, and says of the rest that it was lost.
//
// # Time
//
// A paused sandbox is a record that names a snapshot. Pausing keeps the moment and
// writes that record, and only then ends the instance; resuming makes an instance
// and then writes the record of a running sandbox. So whenever the service dies, the
// record alone says what is: a running sandbox is thawed and adopted, a paused one
// has nothing left but its snapshot, and whatever else is found is removed. What
// changes a sandbox's instance, or takes a moment of it, has its turn (box.turn):
// one at a time for each sandbox.
//
// # Locks
//
// Service.mu guards the table, box.mu one sandbox's fields, box.save the order of
// writes of one record, index.mu the snapshots known. Order: box.turn (which is no
// lock: drivers are called with it), box.save (several boxes' by ID), index.edit,
// box.mu or index.mu, expiry.mu; Service.mu and
// index.mu are never held together with others. No driver and no network is called under a lock; under
// box.save the store is, and the wire is told its rules.
//
// # Parts
//
// Store, images and drivers are injected and stay the caller's to close.
package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/admission"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/snapshot"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/trace"
)

// Options is what a Service is made of. Store, Images, Drivers and Dir are
// required; zero values of the rest are safe.
type Options struct {
	Store   state.Store
	Images  image.Store
	Drivers *driver.Registry
	// Networks takes each sandbox's rules before anything untrusted runs in it.
	Networks Networks
	// Authority is the certificate, in PEM, with which the wire opens TLS: sandboxes whose
	// policy needs that are told to trust it.
	Authority string
	// Vault keeps the secrets that policies name; nil has none.
	Vault Vault
	// Issuer signs sandboxes' identity tokens; nil can't.
	Issuer Issuer
	// Snapshots keeps moments of sandboxes; nil can't.
	Snapshots snapshot.Store
	// Traces measures operations; nil doesn't.
	Traces *trace.Recorder
	// GuestImage is the absolute path of the EROFS image of the guest.
	GuestImage string
	// Dir holds one directory per sandbox, and nothing else.
	Dir string
	// Domain is what ports' host names end in; may be "".
	Domain string
	// DefaultTier is the tier of sandboxes that ask for none; "" is sim.
	DefaultTier carrel.Tier
	// DefaultTemplate is the template of sandboxes that ask for none; "" is base.
	DefaultTemplate string
	// Limits are the defaults; zero fields are 2 CPUs, 1024 MiB of memory, 10240
	// MiB of disk, 1024 processes.
	Limits carrel.Limits
	// MaxLimits bounds what may be asked for; zero fields are not bounded.
	MaxLimits carrel.Limits
	// DefaultTimeout is 5 minutes when 0, MaxTimeout 24 hours.
	DefaultTimeout, MaxTimeout time.Duration
	// MaxSandboxes bounds how many live at once, MaxPaused how many are paused; 0 does not.
	MaxSandboxes, MaxPaused int
	// Retention is the rule of sandboxes that have none of their own; zero is the 20
	// newest.
	Retention carrel.Retention
	// StartTimeout bounds a creation, from the driver's first step to the guest's
	// answer; 0 is 60 seconds.
	StartTimeout time.Duration
	// MaxStarting bounds how many start or resume at once, and MaxQueued how many more may
	// wait for that; zeros are package admission's. Up to MaxStarting, as many start as
	// the machine sustains.
	MaxStarting, MaxQueued int
	// MaxWait bounds how long one waits; 0 is package admission's.
	MaxWait time.Duration
	// Room says whether the machine has room for one more sandbox; nil always has.
	Room func(r admission.Request, starting int) error
	// SampleEvery is how often each sandbox is measured; 0 is 5 seconds.
	SampleEvery time.Duration
	// ReadyTimeout is how long a template's start command may take until its ready command
	// succeeds; 0 is two minutes.
	ReadyTimeout time.Duration
	// Warm keeps sandboxes ready; zero keeps none.
	Warm WarmOptions
	// KillOnClose ends every sandbox at Close. Without it they live on and the next
	// Service adopts them.
	KillOnClose bool
	Logger      *slog.Logger
}

func (o Options) withDefaults() Options {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&o.DefaultTimeout, 5*time.Minute)
	def(&o.MaxTimeout, 24*time.Hour)
	def(&o.StartTimeout, time.Minute)
	def(&o.SampleEvery, 5*time.Second)
	def(&o.ReadyTimeout, 2*time.Minute)
	if o.DefaultTier == "" {
		o.DefaultTier = carrel.Sim
	}
	if o.DefaultTemplate == "" {
		o.DefaultTemplate = image.Base
	}
	o.Limits = fill(o.Limits, carrel.Limits{CPUs: 2, MemoryMB: 1024, DiskMB: 10240, Pids: 1024})
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// fill gives the zero fields of l the values of def.
func fill(l, def carrel.Limits) carrel.Limits {
	if l.CPUs == 0 {
		l.CPUs = def.CPUs
	}
	if l.MemoryMB == 0 {
		l.MemoryMB = def.MemoryMB
	}
	if l.DiskMB == 0 {
		l.DiskMB = def.DiskMB
	}
	if l.Pids == 0 {
		l.Pids = def.Pids
	}
	return l
}

// Service implements [carrel.Service] over drivers on this machine. It is safe
// for concurrent use.
type Service struct {
	opts Options
	log  *slog.Logger

	// ctx ends at Close; every goroutine that spawn started ends with it.
	ctx    context.Context
	cancel context.CancelFunc

	expiry  expiry
	hub     hub
	probes  probes
	snaps   index
	warm    warmPool
	rises   rises
	goldens goldens
	orders  atomic.Uint64   // of the newest /init; see guest.InitRequest.Order
	gate    *admission.Gate // before each start
	builds  *admission.Gate // before each template

	mu      sync.Mutex
	boxes   map[carrel.ID]*box
	live    int // boxes that have an instance, or are getting one
	ended   endings
	closing bool           // nothing new begins
	drained bool           // nothing at all begins: set right before wg is waited for
	wg      sync.WaitGroup // Add is called under mu while drained is false

	closed   chan struct{} // closed when Close is done
	closeErr error
}

var _ carrel.Service = (*Service)(nil)

// New returns a Service that has adopted every sandbox in the store that still
// runs. ctx bounds that adoption only.
func New(ctx context.Context, opts Options) (*Service, error) {
	const op = "open service"
	opts = opts.withDefaults()
	switch {
	case opts.Store == nil || opts.Images == nil || opts.Drivers == nil:
		return nil, &carrel.Error{Op: op, Kind: carrel.Internal, Err: errors.New("a part is missing: store, images or drivers")}
	case !filepath.IsAbs(opts.Dir):
		return nil, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "dir", Err: fmt.Errorf("%q is not an absolute path", opts.Dir)}
	}
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
	}
	s := &Service{opts: opts, log: opts.Logger, boxes: map[carrel.ID]*box{}, closed: make(chan struct{})}
	s.openGates()
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.hub.init()
	s.expiry.init()
	s.warm.init(opts.Warm)
	s.goldens.init()
	if err := s.begin(ctx); err != nil {
		s.opts.KillOnClose = false // what was adopted is not ours to end
		_ = s.Close()              // the first error is the one to tell
		return nil, err
	}
	return s, nil
}

// begin announces the service, adopts what runs and starts the clockwork.
func (s *Service) begin(ctx context.Context) error {
	// This event is also how the service learns the number of the newest one.
	if err := s.emit(ctx, carrel.Event{Type: eventStarted}); err != nil {
		return err
	}
	s.orders.Store(uint64(s.hub.newest()) << 32) // above all that an earlier service gave out: events' numbers rise
	if err := s.loadIndex(ctx); err != nil {
		return err
	}
	s.loadGoldens(ctx)
	if err := s.recover(ctx); err != nil {
		return err
	}
	for _, b := range s.snapshot() {
		if b.record().Wake {
			s.spawn(func() { s.wakeUp(b) })
		}
	}
	for _, work := range []func(){s.expire, s.sample, s.trim, s.idle, s.checkpoints, s.keepWarm} {
		s.spawn(work)
	}
	return nil
}

// spawn runs fn in a goroutine that Close waits for, and reports whether it did:
// a closing service starts nothing.
func (s *Service) spawn(fn func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		fn()
	}()
	return true
}

// hold makes Close wait for the caller, who calls s.wg.Done, and reports whether
// it is still time for that. What ends a sandbox may begin as long as Close itself
// may end some.
func (s *Service) hold() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.drained {
		s.wg.Add(1)
	}
	return !s.drained
}

// Close stops the service. Creations under way are undone. Sandboxes are left
// running for the next service, or killed where Options.KillOnClose says so.
func (s *Service) Close() error {
	s.mu.Lock()
	first := !s.closing
	s.closing = true
	all := s.snapshotLocked()
	s.mu.Unlock()
	if !first {
		<-s.closed
		return s.closeErr
	}
	defer close(s.closed)
	s.closeGates()
	for _, b := range all {
		b.abort(errClosing)
	}
	if s.opts.KillOnClose {
		s.closeErr = s.endAll(all)
	} else {
		for _, b := range all { // what is under way ends before or after, not between
			b.interrupt(errClosing)
		}
	}
	s.mu.Lock()
	s.drained = true
	s.mu.Unlock()
	s.cancel()
	s.wg.Wait()
	s.drainWarm()
	for _, b := range all {
		b.closeConn()
	}
	return s.closeErr
}

// endAll kills sandboxes, all at once.
func (s *Service) endAll(all []*box) error {
	var wg sync.WaitGroup
	errs := make([]error, len(all))
	for i, b := range all {
		wg.Go(func() {
			errs[i] = s.end(context.Background(), b, carrel.EndKilled, "the service was closed")
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// snapshotLocked lists the table. Called with mu held.
func (s *Service) snapshotLocked() []*box {
	all := make([]*box, 0, len(s.boxes))
	for _, b := range s.boxes {
		all = append(all, b)
	}
	return all
}

func (s *Service) snapshot() []*box {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshotLocked()
}

// find returns a sandbox's box. Its error says how the sandbox ended, where that
// is still known.
func (s *Service) find(op string, id carrel.ID) (*box, error) {
	if _, err := carrel.ParseID(string(id)); err != nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.NotFound, Err: err}
	}
	s.mu.Lock()
	b, ok := s.boxes[id]
	e, known := s.ended.get(id)
	s.mu.Unlock()
	if ok {
		return b, nil
	}
	err := &carrel.Error{Op: op, Kind: carrel.NotFound, ID: id, Err: errors.New("no such sandbox")}
	if known {
		err.Err = fmt.Errorf("the sandbox ended (%s): %s", e.reason, e.message)
	}
	return nil, err
}

// Get implements carrel.Sandboxes.
func (s *Service) Get(_ context.Context, id carrel.ID) (carrel.Sandbox, error) {
	b, err := s.find("get sandbox", id)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	return b.public(), nil
}

// Generation is how often a sandbox has been restored; 0 for one that is gone.
func (s *Service) Generation(id carrel.ID) int {
	b, err := s.find("get sandbox", id)
	if err != nil {
		return 0
	}
	return b.public().Generation
}

// Kill implements carrel.Sandboxes. Several at once all return when it has ended.
func (s *Service) Kill(ctx context.Context, id carrel.ID) error {
	b, err := s.find("kill sandbox", id)
	if err != nil {
		return err
	}
	return s.end(ctx, b, carrel.EndKilled, "killed on request")
}

// ListTemplates implements carrel.Templates.
func (s *Service) ListTemplates(ctx context.Context) ([]carrel.Template, error) {
	images, err := s.opts.Images.List(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]carrel.Template, len(images))
	for i, img := range images {
		out[i] = s.goldens.marked(img.Template)
	}
	return out, nil
}

// GetTemplate implements carrel.Templates.
func (s *Service) GetTemplate(ctx context.Context, nameOrID string) (carrel.Template, error) {
	img, err := s.opts.Images.Get(ctx, nameOrID)
	return s.goldens.marked(img.Template), err
}

// ImportTemplate implements carrel.Templates.
func (s *Service) ImportTemplate(ctx context.Context, name string, archive io.Reader, progress func(carrel.Progress)) (carrel.Template, error) {
	pass, err := s.enterBuild(ctx, "import template")
	if err != nil {
		return carrel.Template{}, err
	}
	defer pass.Done(nil)
	img, err := s.opts.Images.Import(ctx, name, archive, progress)
	s.templatesChanged()
	return img.Template, err
}

// PullTemplate implements carrel.Templates.
func (s *Service) PullTemplate(ctx context.Context, name, ref string, progress func(carrel.Progress)) (carrel.Template, error) {
	pass, err := s.enterBuild(ctx, "pull template")
	if err != nil {
		return carrel.Template{}, err
	}
	defer pass.Done(nil)
	img, err := s.opts.Images.Pull(ctx, name, ref, progress)
	s.templatesChanged()
	return img.Template, err
}

// UpdateTemplate implements carrel.Templates.
func (s *Service) UpdateTemplate(ctx context.Context, nameOrID string, u carrel.TemplateUpdate) (carrel.Template, error) {
	img, err := s.opts.Images.Update(ctx, nameOrID, u)
	s.templatesChanged()
	return s.goldens.marked(img.Template), err
}

// DeleteTemplate implements carrel.Templates.
func (s *Service) DeleteTemplate(ctx context.Context, nameOrID string) error {
	defer s.templatesChanged()
	return s.opts.Images.Delete(ctx, nameOrID)
}
