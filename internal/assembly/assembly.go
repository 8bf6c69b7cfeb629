package assembly

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/access"
	"github.com/carrel-dev/carrel/internal/admission"
	"github.com/carrel-dev/carrel/internal/audit"
	"github.com/carrel-dev/carrel/internal/build"
	"github.com/carrel-dev/carrel/internal/catalog"
	"github.com/carrel-dev/carrel/internal/cleanup"
	"github.com/carrel-dev/carrel/internal/config"
	"github.com/carrel-dev/carrel/internal/datadir"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/hostdoor"
	"github.com/carrel-dev/carrel/internal/image/debian"
	"github.com/carrel-dev/carrel/internal/image/hostbase"
	"github.com/carrel-dev/carrel/internal/image/registry"
	"github.com/carrel-dev/carrel/internal/image/store"
	"github.com/carrel-dev/carrel/internal/keeper"
	"github.com/carrel-dev/carrel/internal/ledger"
	"github.com/carrel-dev/carrel/internal/ledger/trail"
	"github.com/carrel-dev/carrel/internal/ledger/trail/forward"
	"github.com/carrel-dev/carrel/internal/pki"
	"github.com/carrel-dev/carrel/internal/service"
	"github.com/carrel-dev/carrel/internal/snapshot"
	"github.com/carrel-dev/carrel/internal/snapshot/disk"
	snapshots "github.com/carrel-dev/carrel/internal/snapshot/store"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/state/memory"
	"github.com/carrel-dev/carrel/internal/trace"
	"github.com/carrel-dev/carrel/internal/vault"
	"github.com/carrel-dev/carrel/internal/wire"
)

// Options configure an Assembly.
type Options struct {
	// Config holds the paths and limits. Its settings for doors are not used here.
	Config config.Config
	// Lasting makes the service a lasting one; nil makes it a passing one. A passing service keeps
	// templates and secrets in Config.DataDir. If that is "", it keeps nothing.
	Lasting *Lasting

	// Drivers replaces the drivers of this build. The assembly closes them. It then has no wire.
	Drivers []driver.Driver
	// Programs are available in every simulated sandbox of a passing service.
	Programs []carrel.Program
	// KillOnClose ends all sandboxes with the service. The sandboxes of a passing service always
	// end with it.
	KillOnClose bool

	// Sources replaces what built-in templates are made of.
	Sources Sources

	// Callers identifies callers from inside a sandbox; nil is an Authenticator without keys.
	Callers *access.Authenticator
	// Nobody is the caller for a context that has none. The zero Caller may do nothing.
	Nobody carrel.Caller
	// HostServices says who may open services on this machine's loopback to sandboxes, and OwnPort
	// which ports there are the program's own doors, which no sandbox reaches; nil is none.
	HostServices access.HostServices
	OwnPort      func(port uint16) bool
	// Issuer signs sandboxes' identity tokens. If it is nil, there are none.
	Issuer service.Issuer
	// SSHKeys are the keys of all projects. If it is nil, there are none.
	SSHKeys access.Keys
	// BuildNetwork is the policy of builds that name none.
	BuildNetwork carrel.Network
	// Supervisor is the service manager's store for open files. If it is nil, there is none.
	Supervisor *keeper.Supervisor
	// Traces measures operations. If it is nil, they are not measured.
	Traces *trace.Recorder
	// Log takes messages that a person may need later; nil discards them.
	Log *slog.Logger
}

// Sources are what built-in templates are made of. Tests bring small ones.
type Sources struct {
	Host     hostbase.Options // of the template host; the zero value is this machine
	Packages *debian.Set      // nil is the packages that this program has pinned
}

// Lasting opens the parts that only a lasting service has. All functions are required.
type Lasting struct {
	// State opens the records.
	State func(ctx context.Context, file string) (state.Store, error)
	// Blobs opens the storage of snapshots' content. It is in dir unless the configuration names
	// another place. shared says that other machines may use it, too.
	Blobs func(ctx context.Context, dir string) (b snapshot.Blobs, shared bool, err error)
	// Sentry writes the small program of gVisor's kernels into dir, and returns its path.
	Sentry func(dir string) (string, error)
	// VMInit writes the first program of virtual machines into dir, and returns its path.
	VMInit func(dir string) (string, error)
}

// Assembly is a service and its parts.
type Assembly struct {
	// Service checks no caller's rights.
	Service *service.Service
	// Access is the service as each caller sees it. Doors use it.
	Access *access.Service
	// Webhooks are the events and webhooks, as each caller sees them.
	Webhooks access.Webhooks
	// Inbox has the connections that wait for a person, as each caller sees them.
	Inbox access.Inbox
	// Movement moves sandboxes and templates to other machines, for administrators.
	Movement access.Movement
	// People are the projects and their keys, as each caller sees them.
	People *access.People
	// SignIns makes sessions of people, and Persons are the people as each caller sees them.
	SignIns *access.SignIns
	Persons *access.Persons
	// Allowances are the quotas, ceilings and budgets, as each caller sees them.
	Allowances *access.Allowances
	// Snapshots keeps the content of snapshots.
	Snapshots *snapshots.Store
	// Vault keeps the secrets of all projects.
	Vault *vault.Vault
	// Tier is the tier of sandboxes whose request names none.
	Tier carrel.Tier

	opts       Options
	cfg        config.Config
	log        *slog.Logger
	dir        string          // directory of the service's own files
	scratch    *scratch        // that directory; nil for a lasting service
	home       *datadir.Dir    // its identity; nil for a passing service
	lost       string          // why sandboxes are lost that run in the original of this copy
	host       *admission.Host // measures the machine; nil for a passing service
	state      state.Store
	directory  *access.Directory
	ledger     *ledger.Ledger // nil for a passing service
	images     *store.Store
	builds     *build.Engine
	drivers    *driver.Registry
	wire       *wire.Wire                   // nil where drivers were given
	authority  *pki.CA                      // opens TLS on the wire
	audit      *audit.Log                   // of the wire
	trail      *trail.Trail                 // of callers; nil for a passing service
	sent       map[string]*forward.Progress // of the trail, by destination
	hooks      lateHooks
	late       service.Late    // the service, for the wire
	workshop   *workshop       // makes built-in templates; nil if there are none
	kernels    *debian.Kernels // of virtual machines; nil for a passing service
	door       hostdoor.Late   // requests from sandboxes to this host
	guest      string          // the guest's image; "" if the drivers know it
	collected  time.Time       // the last collection's end; of the goroutine that collects
	guestCheck *guestCheck     // of that image; nil for none
	keeperless bool            // no keeper is started
	missing    []service.Check // drivers that could not be made
	undo       cleanup.Stack
	errs       []error
}

// Open opens all parts; on an error it leaves none open. The service adopts the sandboxes that
// still run.
func Open(ctx context.Context, opts Options) (_ *Assembly, err error) {
	a := from(opts)
	defer func() {
		if err != nil {
			a.undo.Run()
		}
	}()
	if err := a.openDir(ctx); err != nil {
		return nil, err
	}
	if err := a.openTrail(ctx); err != nil {
		return nil, err
	}
	if err := a.openDrivers(ctx); err != nil {
		return nil, err
	}
	if a.Tier, err = a.chooseTier(ctx); err != nil {
		return nil, err
	}
	if err := a.openStores(ctx); err != nil {
		return nil, err
	}
	if a.Vault, err = vault.Open(filepath.Join(a.cfg.DataDir, "secrets"), vault.Options{KeyFile: a.cfg.Wire.SecretKeyFile, Logger: a.log}); err != nil {
		return nil, err
	}
	if err := a.takeOver(ctx); err != nil {
		return nil, err
	}
	if err := a.openService(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

// from returns an assembly with no part open yet.
func from(opts Options) *Assembly {
	a := &Assembly{opts: opts, cfg: opts.Config, log: opts.Log}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	if a.opts.Callers == nil {
		a.opts.Callers = access.NewAuthenticator()
	}
	if a.passing() {
		a.opts.KillOnClose = true
	}
	return a
}

// passing reports whether the service, with everything in it, ends with this process.
func (a *Assembly) passing() bool { return a.opts.Lasting == nil }

// openDir chooses the directory of the service's own files.
func (a *Assembly) openDir(ctx context.Context) (err error) {
	a.dir = a.cfg.DataDir
	if !a.passing() {
		return a.identify()
	}
	if a.scratch, err = openScratch(ctx); err != nil {
		return err
	}
	a.closing(a.scratch.close)
	a.dir = a.scratch.dir
	if a.cfg.DataDir == "" {
		a.cfg.DataDir = a.dir
	}
	return nil
}

// closing makes Close call a function and keep its error.
func (a *Assembly) closing(close func() error) {
	a.undo.Add(func() { a.errs = append(a.errs, close()) })
}

// Close closes the parts, last first. Sandboxes live on, unless they end with the service. It is
// called once.
func (a *Assembly) Close() error {
	a.undo.Run()
	return errors.Join(a.errs...)
}

// openStores opens the records, the templates and the snapshots.
func (a *Assembly) openStores(ctx context.Context) (err error) {
	if a.passing() {
		a.state = memory.Open()
	} else if a.state, err = a.opts.Lasting.State(ctx, filepath.Join(a.dir, "state.db")); err != nil {
		return err
	}
	a.closing(a.state.Close)
	if err := a.openLedger(ctx); err != nil {
		return err
	}
	if a.directory, err = access.OpenDirectory(ctx, a.state, a.log); err != nil {
		return err
	}
	a.opts.Callers.Use(a.directory)
	a.closing(a.directory.Close)
	a.images, err = store.Open(ctx, a.imageOptions())
	if err != nil {
		return err
	}
	a.closing(a.images.Close)
	return a.openSnapshots(ctx, filepath.Join(a.dir, "snapshots"))
}

// imageOptions configures the store of templates.
func (a *Assembly) imageOptions() store.Options {
	return store.Options{Dir: filepath.Join(a.cfg.DataDir, "templates"),
		CacheDir:   a.cfg.CacheDir,
		Registries: a.registries(), LayerCache: cmp.Or(a.cfg.Registries.LayerCache, -1), Logger: a.log,
		BuiltIns: a.builtIns(), NoFirstUse: a.cfg.NoFirstUse,
		Host: a.opts.Sources.Host, HostBase: a.cfg.Base == config.BaseHost}
}

// registries is the access to registries of images.
func (a *Assembly) registries() registry.Config {
	r := a.cfg.Registries
	out := registry.Config{Allow: r.Allow, Offline: r.Offline, Layout: r.ImageStore}
	for _, m := range r.MirrorList() {
		out.Mirrors = append(out.Mirrors, registry.Mirror{Host: m[0], URL: m[1]})
	}
	return out
}

// openSnapshots opens the snapshot store. Hot copies are in dir; the configuration says where packs
// are.
func (a *Assembly) openSnapshots(ctx context.Context, dir string) (err error) {
	var blobs snapshot.Blobs
	var shared bool
	if a.passing() {
		blobs, err = disk.Open(filepath.Join(dir, "blobs"))
	} else {
		blobs, shared, err = a.opts.Lasting.Blobs(ctx, filepath.Join(dir, "blobs"))
	}
	if err != nil {
		return err
	}
	a.closing(blobs.Close)
	if blobs, err = a.ownPart(dir, blobs, shared); err != nil {
		return err
	}
	a.Snapshots, err = snapshots.Open(ctx, snapshots.Options{Dir: dir, Blobs: blobs, Shared: shared,
		Quota: a.cfg.SnapshotQuota, HotBytes: a.cfg.SnapshotCache, Log: a.log})
	if err != nil {
		return err
	}
	a.closing(a.Snapshots.Close)
	return nil
}

// openService makes the service. Then it gives it to parts that were made before and need it.
func (a *Assembly) openService(ctx context.Context) (err error) {
	c := a.cfg
	a.Service, err = service.New(ctx, service.Options{
		Store: a.state, Images: a.images, Packages: catalog.Packages, Snapshots: a.Snapshots,
		Drivers: a.drivers, Networks: a.networks(),
		Authority: a.authorityPEM(), Vault: a.Vault, Issuer: a.opts.Issuer, GuestImage: a.guest,
		CheckGuest: a.guestCheck.quick, Dir: filepath.Join(a.dir, "sandboxes"),
		Domain: c.Domain, DefaultTier: a.Tier, DefaultTemplate: c.DefaultTemplate,
		Limits: c.Limits, MaxLimits: c.MaxLimits, DefaultTimeout: c.DefaultTimeout, MaxTimeout: c.MaxTimeout,
		Traces: a.opts.Traces,
		Meter:  a.meter(), Allowances: a.directory,
		OnUpgrade:    service.OnUpgrade(c.OnUpgrade),
		MaxSandboxes: c.MaxSandboxes, MaxPaused: c.MaxPaused, KillOnClose: a.opts.KillOnClose, Logger: a.log,
		Warm: warmOptions(c.Warm), LostReason: a.lost, EventsNeeded: a.eventsNeeded,
		GetKernel:   a.getKernel,
		MaxStarting: c.MaxStarting, MaxQueued: c.MaxQueued, MaxWait: c.MaxWait, Room: a.room(),
	})
	if err != nil {
		return err
	}
	a.closing(a.Service.Close)
	a.runLedger()
	if err := a.openBuilds(ctx); err != nil {
		return err
	}
	access := access.New(access.Options{Core: a.Service, Builds: a.builds, Secrets: a.Vault.For,
		Audits: a.audits(), Traces: a.traces(), SSHKeys: a.opts.SSHKeys, Nobody: a.opts.Nobody,
		HostServices: a.opts.HostServices, Usage: a.usage(), Ceilings: a.directory.Ceilings})
	a.Access, a.People = access, people(access, a.directory)
	a.Inbox, a.Movement = questions(access, a.Service), movement(access, a.Service)
	a.openSignIns()
	if err := a.oversee(ctx); err != nil {
		return err
	}
	if err := a.openWebhooks(); err != nil {
		return err
	}
	a.late.Open(a.Service)
	if err := a.clearWorkshop(ctx); err != nil {
		return err
	}
	door := hostdoor.New(hostdoor.Options{
		Inside: a.opts.Callers.Inside, Moments: access, Journal: a.Journal(), Logger: a.log, Generation: a.Service.Generation, Tokens: a.Service.MintToken, Sandbox: access.Get,
	})
	a.door.Open(door)
	a.closing(door.Close) // before the service, which it calls
	return nil
}

// questions returns the inbox of a service to its callers.
func questions(s *access.Service, core *service.Service) access.Inbox {
	return access.Inbox{Service: s, Core: service.InboxOf(core)}
}

// movement returns the movement of a service to its callers.
func movement(s *access.Service, core *service.Service) access.Movement {
	return access.Movement{Service: s, Core: service.MovementOf(core)}
}

// people returns the projects and keys to the callers of a service.
func people(s *access.Service, d *access.Directory) *access.People { return access.NewPeople(s, d) }

// traces returns a function for a sandbox's latest operations; nil if they are not measured.
func (a *Assembly) traces() func(carrel.ID) []carrel.Trace {
	if a.opts.Traces == nil {
		return nil
	}
	return a.opts.Traces.Of
}

// room returns a function that checks whether the machine has room for one more sandbox. It is
// called only after the service exists. A passing service has no such check: its process has one
// user, who knows the machine.
func (a *Assembly) room() func(admission.Request, int) error {
	if a.passing() {
		return nil
	}
	a.host = admission.NewHost(admission.HostOptions{Dir: a.cfg.DataDir, MemoryReserve: a.cfg.MemoryReserve, Overcommit: a.cfg.MemoryOvercommit,
		Committed: func() int { return a.Service.Committed() }})
	return a.host.Check
}

// Admission returns the state of the gate before each start, with what is free on the machine.
func (a *Assembly) Admission() admission.State {
	st := a.Service.Admission()
	if a.host != nil {
		st.Machine = a.host.Machine()
	}
	if last, err := a.state.EventsBefore(context.Background(), "", 0, 1); err == nil && len(last) == 1 {
		st.Event = last[0].Seq
	}
	return st
}

// warmOptions configures the sandboxes that the service keeps ready.
func warmOptions(c config.Warm) service.WarmOptions {
	out := service.WarmOptions{Cap: c.Cap}
	for _, f := range c.Floors {
		out.Floors = append(out.Floors, service.WarmFloor(f))
	}
	return out
}
