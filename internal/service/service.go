// Package service is the one owner of every sandbox's state. It makes sandboxes, finds them, ends
// them, and keeps their records.
//
// # Lifecycle
//
// Create reserves a place, writes a record (state starting), has a driver build the walls, gives
// the guest its identity and writes the record again (running, with the driver's handle). Only then
// does Create return. A step that fails undoes the steps before it. A sandbox ends because someone
// kills it, because its timeout passes, or by itself. Each end runs once, however many callers ask,
// and is an event with its reason. A new Service on an old store adopts the sandboxes that still
// run, under the same ID, tokens and deadline. It reports the others as lost.
//
// # Time
//
// A paused sandbox is a record that names a snapshot. Pausing takes the snapshot, then writes that
// record, and only then ends the instance. Resuming makes an instance and then writes the record of
// a running sandbox. So at whatever step the service dies, the record alone decides. A running
// sandbox is thawed and adopted. A paused one keeps only its snapshot. Everything else that is
// found is removed. An operation that changes a sandbox's instance or takes a snapshot of it holds
// box.turn: one operation at a time for each sandbox.
//
// # Parts
//
// Service is a front. Behind it, each part has one task, and the lock of the data it guards:
//
//	table      all sandboxes, and the places of those that may live              table.mu
//	journal    events                                                            hub.mu
//	gates      where a start waits for its turn (package admission)
//	rules      limits on requests
//	records    writes of records, in their order                                 box.save
//	roots      root images that are needed
//	templates  the templates that sandboxes are made from
//	resolver   what a name or ID of a template or snapshot means to its caller
//	launcher   makes drivers create and destroy instances                        probes.mu
//	greeter    tells guests who they are                                         rises.mu
//	networks   rules, and answers to the wire
//	creator    plans and makes sandboxes
//	lifecycle  ends them, on request, at their time, or when they end            expiry.mu
//	recovery   takes over the sandboxes of an earlier service
//	moments    pause, resume, fork, rollback, promotion, visits
//	archive    snapshots: kept, shown, compared, removed
//	builds     the builds that can restore them                                  builds.mu
//	movement   sandboxes and templates that go to another machine, or come       Movement.mu
//	meter, autopilot   measurements, and the service's own snapshots and pauses
//
// Some parts have packages of their own, which know no sandbox: timeline (the index of snapshots),
// warm (sandboxes made ahead; nursery makes them), golden (templates' own starts; ripener makes
// them), filediff (comparing snapshots' files).
//
// The caller gives the service its store, images and drivers, and closes them.
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
// All others are leaves: nothing else is taken under table.mu, hub.mu, probes.mu, rises.mu, and the
// locks of timeline, warm and golden. No driver and no network is called under a lock. Under
// box.save, the store is called and the wire is told its rules.
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
	"github.com/carrel-dev/carrel/internal/readiness"
	"github.com/carrel-dev/carrel/internal/service/golden"
	"github.com/carrel-dev/carrel/internal/service/warm"
	"github.com/carrel-dev/carrel/internal/snapshot"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/trace"
)

// Options holds the parts and settings of a Service. Store, Images, Drivers and Dir are required.
// Zero values of the rest are safe.
type Options struct {
	Store  state.Store
	Images image.Store
	// GetKernel brings the kernel of virtual machines, which stands for the built-in template
	// [image.Kernel]. With nil there is none.
	GetKernel func(context.Context, func(carrel.Progress)) (carrel.Template, error)
	// Packages lists the packages in an image and names its system. With nil no packages are listed.
	Packages func(context.Context, image.Files) ([]carrel.Package, string, error)
	Drivers  *driver.Registry
	// Networks gets each sandbox's rules before any untrusted program runs in it.
	Networks Networks
	// Authority is the certificate, in PEM, with which the wire opens TLS. Sandboxes whose policy
	// needs it are told to trust it.
	Authority string
	// Vault keeps the secrets that policies name. With nil there are none.
	Vault Vault
	// Issuer signs sandboxes' identity tokens. With nil there are no tokens.
	Issuer Issuer
	// Snapshots keeps the snapshots of sandboxes. With nil there are none.
	Snapshots snapshot.Store
	// Allowances says what projects and keys may use and allow. With nil nothing is bounded.
	Allowances Allowances
	// Meter learns what sandboxes use. With nil nobody does.
	Meter Meter
	// Traces measures operations. With nil nothing is measured.
	Traces *trace.Recorder
	// GuestImage is the absolute path of the EROFS image of the guest.
	GuestImage string
	// CheckGuest makes sure, before each start, that this image is whole. Nil checks nothing.
	CheckGuest func() error
	// Dir holds one directory for each sandbox, and nothing else.
	Dir string
	// Domain is the last part of ports' host names. It may be "".
	Domain string
	// DefaultTier is the tier of sandboxes that ask for none; "" is sim.
	DefaultTier carrel.Tier
	// DefaultTemplate is the template of sandboxes that ask for none; "" is base.
	DefaultTemplate string
	// Limits are the default limits. Zero fields are 2 CPUs, 1024 MiB of memory, 10240 MiB of disk,
	// 1024 processes.
	Limits carrel.Limits
	// MaxLimits bounds the limits in requests. Zero fields are no bounds.
	MaxLimits carrel.Limits
	// DefaultTimeout is 5 minutes when 0, MaxTimeout 24 hours.
	DefaultTimeout, MaxTimeout time.Duration
	// MaxSandboxes bounds how many sandboxes live at once, and MaxPaused how many are paused. 0 is
	// no bound.
	MaxSandboxes, MaxPaused int
	// Retention is the rule of sandboxes without a rule of their own. Zero keeps the 20 newest.
	Retention carrel.Retention
	// StartTimeout bounds a creation, from the driver's first step to the guest's
	// answer; 0 is 60 seconds.
	StartTimeout time.Duration
	// MaxStarting bounds how many sandboxes start or resume at once. MaxQueued bounds how many more
	// may wait. Zeros are the defaults of package admission. As many start as the machine sustains,
	// at most MaxStarting.
	MaxStarting, MaxQueued int
	// MaxWait bounds how long a start waits for its turn. 0 is the default of package admission.
	MaxWait time.Duration
	// Room returns an error unless the machine has room for one more sandbox. Nil means there is
	// always room.
	Room func(r admission.Request, starting int) error
	// SampleEvery is how often each sandbox is measured; 0 is 5 seconds.
	SampleEvery time.Duration
	// ReadyTimeout is how long a template's start command may take until its ready command
	// succeeds; 0 is two minutes.
	ReadyTimeout time.Duration
	// Warm keeps sandboxes ready. Zero keeps none.
	Warm WarmOptions
	// EventsNeeded returns a number: somebody still has to read the events after it. nil is nobody.
	EventsNeeded func() int64
	// LostReason says why recorded sandboxes are gone, if this service knows it. "" is the usual
	// reason: the machine or the sandbox was stopped.
	LostReason string
	// OnUpgrade says how the memory of sandboxes of other builds is saved; "" is UpgradeKeep.
	OnUpgrade OnUpgrade
	// KillOnClose ends every sandbox at Close. Without it, sandboxes live on and the next Service
	// adopts them.
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
	def(&o.ReadyTimeout, readiness.Within)
	if o.DefaultTier == "" {
		o.DefaultTier = carrel.Sim
	}
	if o.DefaultTemplate == "" {
		o.DefaultTemplate = image.Base
	}
	o.Limits = fill(o.Limits, carrel.Limits{CPUs: 2, MemoryMB: 1024, DiskMB: 10240, Pids: 1024})
	if o.Meter == nil {
		o.Meter = noMeter{}
	}
	if o.Allowances == nil {
		o.Allowances = noAllowances{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// fill replaces the zero fields of l with the values of def.
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

// Service implements the parts of [carrel.Service] that need drivers on this machine. It is safe
// for concurrent use. It is a front for its own parts, and starts and stops them.
//
// Service does not check a caller's rights. Package access does, between the doors and the service.
// The caller in the context decides the project of a new sandbox or template, and the project in
// which a name is looked up.
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
	tether    *Tether
	archive   *archive
	lost      *lostAndFound
	meter     *meter
	autopilot *autopilot
	ripener   *ripener
	movement  *Movement
	warm      *warm.Pool[*prepared]
	goldens   *golden.Starts

	labels
	pastFiles

	closed   chan struct{} // closed when Close is done
	closeErr error
}

var _ interface {
	carrel.Sandboxes
	carrel.Moments
	carrel.Templates
	carrel.Programs
	carrel.Pools
	carrel.Checks
} = (*Service)(nil)

// New returns a Service that has adopted every sandbox in the store that still runs. ctx bounds
// only this adoption.
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
		s.opts.KillOnClose = false // do not end adopted sandboxes
		_ = s.Close()              // report only the first error
		return nil, err
	}
	return s, nil
}

// begin writes the event of the start, adopts running sandboxes and starts the background loops.
func (s *Service) begin(ctx context.Context) error {
	// From this event, the service also learns the number of the newest event.
	if err := s.journal.emit(ctx, carrel.Event{Type: eventStarted}); err != nil {
		return err
	}
	s.greeter.orders.Store(uint64(s.journal.hub.newest()) << 32) // events' numbers rise: above all earlier ones
	s.lost.load()
	if err := s.archive.loadIndex(ctx); err != nil {
		return err
	}
	s.ripener.load(ctx)
	if err := s.recovery.recover(ctx); err != nil {
		return err
	}
	if err := s.loadCreations(ctx); err != nil {
		return err
	}
	s.lost.announce()
	for _, b := range s.table.snapshot() {
		s.creator.repeats.load(b.record())
		if b.record().Wake {
			s.table.spawn(func() { s.recovery.wakeUp(b) })
		}
	}
	for _, work := range []func(){s.lifecycle.expire, s.meter.sample, s.meter.count, s.trim,
		s.autopilot.idle, s.autopilot.checkpoints, func() { s.warm.Keep(s.table.ctx) }} {
		s.table.spawn(work)
	}
	return nil
}

// Close stops the service. Creations under way are undone. Sandboxes run on for the next service.
// With Options.KillOnClose, Close kills them.
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
		for _, b := range all { // wait for operations under way, so that none stops halfway
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

// Generation is how often a sandbox has been restored. It is 0 for a sandbox that is gone.
func (s *Service) Generation(id carrel.ID) int {
	b, err := s.table.find("get sandbox", id)
	if err != nil {
		return 0
	}
	return b.public().Generation
}
