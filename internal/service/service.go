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
// # Parts
//
// Service is a front. Behind it, each part has one concern, and the lock of what it guards:
//
//	table      the sandboxes there are, the places among those that may live     table.mu
//	journal    events                                                            hub.mu
//	gates      where a start waits for its turn (package admission)
//	rules      limits on what may be asked for
//	records    writes of records, in their order                                 box.save
//	roots      root images that something needs
//	templates  what sandboxes are made from
//	resolver   what a name or ID of a template or snapshot means to its caller
//	launcher   has drivers stand sandboxes up and take them down                 probes.mu
//	greeter    tells guests who they are                                         rises.mu
//	networks   rules, and what the wire asks for
//	creator    plans and makes sandboxes
//	lifecycle  ends them, on request, at their time, or when they end            expiry.mu
//	recovery   takes over what an earlier service left
//	moments    pause, resume, fork, rollback, promotion, visits
//	archive    snapshots: kept, shown, compared, removed
//	meter, autopilot   what is measured, and what happens by itself
//
// Parts in packages of their own, which know no sandbox: timeline (the index of snapshots),
// warm (sandboxes made ahead; nursery makes them), golden (templates' own starts; ripener
// makes them), filediff (comparing snapshots' files).
//
// Store, images and drivers are injected and stay the caller's to close.
//
// # Locks
//
// box.mu guards one sandbox's fields, box.save the order of writes of one record. The order:
//
//  1. box.turn, which is no lock: drivers are called with it
//  2. box.save, several boxes' by ID
//  3. timeline.Index.LockEdits
//  4. box.mu
//  5. expiry.mu, and a table's spawn, which takes table.mu
//
// All others are leaves: nothing else is taken under table.mu, hub.mu, probes.mu, rises.mu,
// and the locks of timeline, warm and golden. No driver and no network is called under a
// lock; under box.save the store is, and the wire is told its rules.
package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/admission"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/service/golden"
	"github.com/carrel-dev/carrel/internal/service/warm"
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

// Service implements the parts of [carrel.Service] that need drivers on this machine.
// It is safe for concurrent use. It is a front for its own parts, and starts and stops them.
//
// It does what it is asked and checks nobody's rights: package access does, and stands
// between it and the doors. The caller in the context says to which project a new sandbox
// or template belongs, and in which project a name is looked for.
type Service struct {
	opts *Options
	log  *slog.Logger

	table     *table
	journal   *journal
	gates     *gates
	records   *records
	roots     *roots
	templates *templates
	greeter   *greeter
	networks  *networks
	creator   *creator
	lifecycle *lifecycle
	recovery  *recovery
	moments   *moments
	archive   *archive
	meter     *meter
	autopilot *autopilot
	ripener   *ripener
	warm      *warm.Pool[*prepared]
	goldens   *golden.Starts

	closed   chan struct{} // closed when Close is done
	closeErr error
}

var _ interface {
	carrel.Sandboxes
	carrel.Moments
	carrel.Templates
	carrel.Programs
	carrel.Pools
} = (*Service)(nil)

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
	s := assemble(ctx, &opts)
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
	if err := s.journal.emit(ctx, carrel.Event{Type: eventStarted}); err != nil {
		return err
	}
	s.greeter.orders.Store(uint64(s.journal.hub.newest()) << 32) // above all that an earlier service gave out: events' numbers rise
	if err := s.archive.loadIndex(ctx); err != nil {
		return err
	}
	s.ripener.load(ctx)
	if err := s.recovery.recover(ctx); err != nil {
		return err
	}
	for _, b := range s.table.snapshot() {
		if b.record().Wake {
			s.table.spawn(func() { s.recovery.wakeUp(b) })
		}
	}
	for _, work := range []func(){s.lifecycle.expire, s.meter.sample, s.trim, s.autopilot.idle, s.autopilot.checkpoints, func() { s.warm.Keep(s.table.ctx) }} {
		s.table.spawn(work)
	}
	return nil
}

// Close stops the service. Creations under way are undone. Sandboxes are left
// running for the next service, or killed where Options.KillOnClose says so.
func (s *Service) Close() error {
	all, first := s.table.close()
	if !first {
		<-s.closed
		return s.closeErr
	}
	defer close(s.closed)
	s.gates.close()
	for _, b := range all {
		b.abort(errClosing)
	}
	if s.opts.KillOnClose {
		s.closeErr = s.lifecycle.endAll(all)
	} else {
		for _, b := range all { // what is under way ends before or after, not between
			b.interrupt(errClosing)
		}
	}
	s.table.drain()
	s.warm.Drain()
	for _, b := range all {
		b.closeConn()
	}
	return s.closeErr
}

// Get implements carrel.Sandboxes.
func (s *Service) Get(_ context.Context, id carrel.ID) (carrel.Sandbox, error) {
	b, err := s.table.find("get sandbox", id)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	return b.public(), nil
}

// Generation is how often a sandbox has been restored; 0 for one that is gone.
func (s *Service) Generation(id carrel.ID) int {
	b, err := s.table.find("get sandbox", id)
	if err != nil {
		return 0
	}
	return b.public().Generation
}
