package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/access"
	"github.com/carrel-dev/carrel/internal/api"
	"github.com/carrel-dev/carrel/internal/assembly"
	"github.com/carrel-dev/carrel/internal/certs"
	"github.com/carrel-dev/carrel/internal/cleanup"
	"github.com/carrel-dev/carrel/internal/config"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/fleet/member"
	"github.com/carrel-dev/carrel/internal/gateway"
	"github.com/carrel-dev/carrel/internal/identity"
	"github.com/carrel-dev/carrel/internal/reexec"
	"github.com/carrel-dev/carrel/internal/request"
	"github.com/carrel-dev/carrel/internal/reserve"
	"github.com/carrel-dev/carrel/internal/service"
	"github.com/carrel-dev/carrel/internal/signin"
	"github.com/carrel-dev/carrel/internal/sshdoor"
	"github.com/carrel-dev/carrel/internal/trace"
	"github.com/carrel-dev/carrel/internal/version"
)

// Reexec is the table of roles for this binary when a driver or the daemon starts it again. A
// program's main must first give it to reexec.Run.
func Reexec() reexec.Parts { return assembly.Parts() }

// Hooks are told what happens.
type Hooks struct {
	// Ready is called when requests are served. key is the API key. first says that it was made at
	// this start, the only time when it should be shown.
	Ready func(url, key string, first bool)
}

// Options replaces parts, for programs and tests that bring their own. With the zero value, the
// daemon makes all of them.
type Options struct {
	// Drivers replaces the drivers of this build. The daemon closes them.
	Drivers []driver.Driver
	// Listener replaces the one made from Config.Listen. The daemon closes it.
	Listener net.Listener
	// KillOnClose ends all sandboxes with the daemon.
	KillOnClose bool
	// Keys are API keys besides the daemon's own.
	Keys []access.Key
	// Logger replaces the one made from Config's log fields.
	Logger *slog.Logger
}

// Daemon is a service with its doors. New makes it, Serve runs it, Close ends it.
type Daemon struct {
	cfg      config.Config
	log      *slog.Logger
	key      string
	firstRun bool
	url      string
	network  *carrel.Network // for sandboxes created without network fields

	listener net.Listener
	server   *http.Server
	parts    *assembly.Assembly // what is below the doors
	traces   *trace.Recorder
	figures  figures
	issuer   *identity.Issuer
	callers  *access.Authenticator
	provider signin.Provider // nil for none
	certs    certs.Source    // nil without TLS
	reserve  *reserve.Reserve

	sshKeys     *sshdoor.Keys
	sshDoor     *sshdoor.Door // nil unless SSH is served
	sshListener net.Listener
	own         ownPorts

	member        *member.Member // nil unless the daemon is a node of a fleet
	tether        *service.Tether
	fleetListener net.Listener
	given         given // by a supervisor

	ready    atomic.Bool
	stopping chan struct{} // closed when streams should end
	stopOnce sync.Once
	undo     cleanup.Stack
	closing  sync.Once
	closeErr error
}

// Run runs a daemon until ctx ends, and returns nil then.
func Run(ctx context.Context, cfg config.Config, hooks Hooks) error {
	d, err := New(ctx, cfg, Options{})
	if err != nil {
		return err
	}
	if hooks.Ready != nil {
		hooks.Ready(d.URL(), d.Key(), d.firstRun)
	}
	go tendHeap(ctx) // only here, where the process is the daemon's own
	err = d.Serve(ctx)
	return errors.Join(err, d.Close())
}

// New opens everything that a daemon needs, and adopts the sandboxes that still run. It listens
// already, but requests wait until Serve. On error nothing is left open.
func New(ctx context.Context, cfg config.Config, opts Options) (_ *Daemon, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	for _, dir := range []*string{&cfg.DataDir, &cfg.CacheDir} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return nil, &carrel.Error{Op: "start daemon", Kind: carrel.Internal, Err: err}
		}
	}
	d := &Daemon{cfg: cfg, log: opts.Logger, stopping: make(chan struct{})}
	if d.network, err = defaultNetwork(cfg.Wire); err != nil {
		return nil, err
	}
	if d.log == nil {
		d.log = newLogger(cfg, os.Stderr)
	}
	defer func() {
		if err != nil {
			d.undo.Run()
		}
	}()
	if err := d.openLogs(ctx); err != nil {
		return nil, err
	}
	d.given = takeGiven()
	d.undo.Add(d.given.close)
	files := raiseFileLimit()
	lock, err := openDir(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	d.undo.Add(func() { _ = lock.Close() })
	d.reserve = reserve.Open(cfg.DataDir, d.log)
	if d.key, d.firstRun, err = apiKey(cfg.DataDir); err != nil {
		return nil, err
	}
	if d.provider, err = OpenProvider(cfg.SignIn); err != nil {
		return nil, err
	}
	d.callers = access.NewAuthenticator(append([]access.Key{{Name: "api-key", Secret: d.key, Role: carrel.RoleAdmin}}, opts.Keys...)...)
	// Listen first: then a taken port gives an error before anything is started.
	if err := d.listen(opts.Listener, files); err != nil {
		return nil, err
	}
	err = d.reserve.Do(func() (err error) {
		d.sshKeys, err = sshdoor.OpenKeys(d.sshDir())
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := d.openService(ctx, opts); err != nil {
		return nil, err
	}
	if err := d.openFleet(); err != nil {
		return nil, err
	}
	if err := d.openSSH(); err != nil {
		return nil, err
	}
	d.openDoors()
	return d, nil
}

// listen opens the listener. It bounds the connections, so that they can't use up the files that
// sandboxes need.
func (d *Daemon) listen(l net.Listener, files uint64) error {
	if l == nil {
		var err error
		if l, err = d.given.listener(); err != nil {
			return err
		}
	}
	if l == nil {
		var err error
		if l, err = net.Listen("tcp", d.cfg.Listen); err != nil {
			return &carrel.Error{Op: "listen", Kind: carrel.Unavailable, Field: "listen", Err: err,
				Hint: "another program has this address; choose one with --listen"}
		}
	}
	most := d.cfg.MaxConnections
	if most == 0 {
		most = int(min(files/2, 16384))
	}
	d.listener = newLimitListener(l, most)
	for _, addr := range []string{l.Addr().String(), d.cfg.Listen, d.cfg.Ingress.SSHListen, d.cfg.Ingress.ACMEHTTPListen} {
		d.own.add(addr)
	}
	d.undo.Add(func() { _ = d.listener.Close() })
	d.url = reachableURL(l.Addr(), d.cfg)
	return d.openCertificates(l.Addr())
}

// openService opens the parts below the doors.
func (d *Daemon) openService(ctx context.Context, opts Options) (err error) {
	if err := d.openMetrics(); err != nil {
		return err
	}
	if err := d.openTraces(ctx); err != nil {
		return err
	}
	d.traces.Watch(ended(d.figures.all.Operations()))
	if err := d.reserve.Do(d.openIssuer); err != nil {
		return err
	}
	err = d.reserve.Do(func() (err error) {
		d.parts, err = assembly.Open(ctx, assembly.Options{
			Config: d.cfg, Lasting: lasting(d.cfg, d.reserve, d.log), Drivers: opts.Drivers,
			KillOnClose:  opts.KillOnClose,
			HostServices: hostServices(d.cfg.Wire.HostServices, d.listener.Addr()), OwnPort: d.own.has,
			Supervisor: d.given.store, BuildNetwork: d.buildNetwork(), Callers: d.callers, Issuer: d.issuer,
			SSHKeys: d.sshKeys, Traces: d.traces, Log: d.log,
		})
		return err
	})
	if err != nil {
		return err
	}
	d.undo.Add(func() { d.closed("close service", d.parts.Close()) })
	d.parts.Measure(d.figures.all)
	if err := d.sendMetrics(ctx); err != nil {
		return err
	}
	return d.prepareBase(ctx)
}

// prepareBase makes the template base before anything is served, if the configuration demands it.
// That may take minutes, which the supervisor must allow.
func (d *Daemon) prepareBase(ctx context.Context) error {
	made := make(chan error, 1)
	go func() { made <- d.parts.PrepareBase(ctx) }()
	for {
		select {
		case err := <-made:
			return err
		case <-time.After(patience / 4):
			d.tellBusy("Making the template base.", patience)
		}
	}
}

// buildNetwork is the policy of builds that name none: the daemon's default, or the internet, since
// most builds fetch packages.
func (d *Daemon) buildNetwork() carrel.Network {
	if d.network != nil {
		return *d.network
	}
	return carrel.Network{Internet: true}
}

// closed logs and keeps the error of closing a part.
func (d *Daemon) closed(what string, err error) {
	if err != nil {
		d.log.Error(what, "err", err)
		d.closeErr = errors.Join(d.closeErr, err)
	}
}

// openDoors makes the handlers in front of the service.
func (d *Daemon) openDoors() {
	// The gateway does not use package access. The sandbox's own tokens decide who may use a port.
	gw := gateway.New(gateway.Options{Sandboxes: d.parts.Service, MaxPerSandbox: d.cfg.MaxSandboxConnections, Callers: d.callers,
		Journal: d.parts.Journal(), Served: d.figures.visits.Served, Traces: d.traces, Log: d.log})
	d.undo.Add(func() { _ = gw.Close() })
	control := api.New(api.Options{
		Service: d.parts.Access, Callers: d.callers, Version: version.Version, Limits: d.cfg.Limits, MaxTimeout: d.cfg.MaxTimeout,
		Snapshots: d.parts.Snapshots, Rekey: d.parts.Vault.Rekey, DefaultNetwork: d.network,
		Builds: d.parts.Access,
		People: d.parts.People, Persons: d.parts.Persons, Allowances: d.parts.Allowances,
		Teams:    access.Counts{Service: d.parts.Access},
		Webhooks: d.parts.Webhooks,
		Inbox:    d.parts.Inbox,
		Nodes:    access.Nodes{Service: d.parts.Access, Core: carrel.NoNodes{}},
		Movement: d.parts.Movement,
		Trails:   d.parts.Trails(), Journal: d.parts.Journal(),
		Metrics: d.figures.all.Handler(), Served: d.figures.api.Served, Traces: d.traces,
		Admission: d.parts.Admission,
		Doctor:    d.doctor,
		Ready:     d.ready.Load, Done: d.stopping, Log: d.log,
	})
	d.server = newServer(request.Wrap(gw.Wrap(d.publish(d.console(d.signIns(control))))), d.log)
}

// URL is where clients on this machine reach the daemon.
func (d *Daemon) URL() string { return d.url }

// Key is the API key.
func (d *Daemon) Key() string { return d.key }

// Service is the service behind the doors, for the program that embeds the daemon. For a context
// without a caller, the caller is [carrel.Local].
func (d *Daemon) Service() carrel.Service { return d.parts.Access.As(carrel.Local()) }

// Serve serves requests until ctx ends, then drains, and returns nil.
func (d *Daemon) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel() // before the wait
	if d.certs != nil {
		wg.Go(func() { d.runCertificates(ctx) })
	}
	if d.figures.listener != nil {
		wg.Go(func() { d.serveMetrics(ctx) })
	}
	if d.sshDoor != nil {
		wg.Go(func() { d.serveSSH(ctx) })
	}
	leave := d.enterFleet(ctx, &wg)
	defer leave() // before the wait
	wg.Go(func() { d.parts.Tend(ctx) })
	wg.Go(func() { d.tendReserve(ctx) })
	d.ready.Store(true)
	if err := d.reserve.Do(d.announce); err != nil {
		if !reserve.NoRoom(err) {
			return err
		}
		d.log.Error("local commands don't find this daemon by themselves: the disk is full", "err", err,
			"hint", "give them --url "+d.url)
		wg.Go(func() { d.announceLater(ctx) })
	}
	defer announcement{d.cfg.DataDir}.withdraw()
	served := make(chan error, 1)
	go func() { served <- d.server.Serve(d.strictListener()) }()
	d.parts.TellBase()
	d.log.Info("ready", "url", d.url, "tier", d.parts.Tier)
	d.tellReady()
	select {
	case err := <-served:
		return &carrel.Error{Op: "serve", Kind: carrel.Internal, Err: err}
	case <-ctx.Done():
	}
	leave()
	d.drain()
	<-served
	return nil
}

// drain stops accepting requests. It gives running ones some time, and then cuts them off.
func (d *Daemon) drain() {
	d.tellStopping()
	d.ready.Store(false)
	d.stopOnce.Do(func() { close(d.stopping) })
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	if d.server.Shutdown(ctx) != nil {
		_ = d.server.Close() // streams to sandboxes never end by themselves
	}
}

// Close ends the daemon and its parts. Sandboxes live on, unless Options.KillOnClose is set.
func (d *Daemon) Close() error {
	d.closing.Do(func() {
		d.stopOnce.Do(func() { close(d.stopping) })
		_ = d.server.Close()
		d.undo.Run()
	})
	return d.closeErr
}

// tendReserve makes the reserve, and makes it again after it was given up, until ctx ends.
func (d *Daemon) tendReserve(ctx context.Context) {
	for {
		if err := d.reserve.Keep(); err != nil {
			d.log.Warn("keep some room back", "err", err)
		}
		if !sleep(ctx, roomEvery) {
			return
		}
	}
}

// sleep waits, and reports whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// newLogger writes to w, in the configured form and from the configured level.
func newLogger(cfg config.Config, w *os.File) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(cfg.LogLevel)) // Validate knows the same names
	opts := &slog.HandlerOptions{Level: level}
	if cfg.LogFormat == "json" {
		return slog.New(request.Handler(slog.NewJSONHandler(w, opts)))
	}
	return slog.New(request.Handler(slog.NewTextHandler(w, opts)))
}
