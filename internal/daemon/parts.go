package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/api"
	"github.com/carrel-dev/carrel/internal/audit"
	"github.com/carrel-dev/carrel/internal/cleanup"
	"github.com/carrel-dev/carrel/internal/config"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/gvisor"
	"github.com/carrel-dev/carrel/internal/driver/gvisor/sentrybin"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/driver/ns"
	"github.com/carrel-dev/carrel/internal/driver/sim"
	"github.com/carrel-dev/carrel/internal/guest/guestbin"
	"github.com/carrel-dev/carrel/internal/hostdoor"
	"github.com/carrel-dev/carrel/internal/identity"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/store"
	"github.com/carrel-dev/carrel/internal/keeper"
	"github.com/carrel-dev/carrel/internal/pki"
	"github.com/carrel-dev/carrel/internal/reexec"
	"github.com/carrel-dev/carrel/internal/service"
	snapshots "github.com/carrel-dev/carrel/internal/snapshot/store"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/state/sqlite"
	"github.com/carrel-dev/carrel/internal/vault"
	"github.com/carrel-dev/carrel/internal/wire"
)

// Reexec is the table of parts that this binary plays when a driver or the daemon
// starts it again. Program's main hands it to reexec.Run first of all.
func Reexec() reexec.Parts {
	all := reexec.Parts{}
	for _, table := range []reexec.Parts{gvisor.Parts(), ns.Parts(), sim.Parts(inside), keeper.Parts()} {
		for name, play := range table {
			all[name] = play
		}
	}
	return all
}

// strongest lists the tiers that a daemon chooses its default from.
var strongest = []carrel.Tier{carrel.MicroVM, carrel.GVisor, carrel.NS, carrel.Sim}

// parts are what the service is made of.
type parts struct {
	state       state.Store
	images      *store.Store
	registry    *driver.Registry
	snapshots   *snapshots.Store
	wire        *wire.Wire
	authority   *pki.CA // opens TLS on the wire
	audit       *audit.Log
	vault       *vault.Vault
	issuer      *identity.Issuer
	late        service.Late  // the service, for the wire
	door        hostdoor.Late // what sandboxes may ask of this host
	guestImage  string
	defaultTier carrel.Tier
	// passing says that nothing may outlive these parts: no keeper is started.
	passing bool
	// missing are drivers that could not even be made, for the doctor.
	missing []api.DriverReport
	undo    cleanup.Stack
	errs    []error
}

// openParts opens all parts; on error none is left open.
func openParts(ctx context.Context, cfg config.Config, drivers []driver.Driver, log *slog.Logger) (_ *parts, err error) {
	p := &parts{}
	defer func() {
		if err != nil {
			p.undo.Run()
		}
	}()
	if err := p.openDrivers(ctx, cfg, drivers, log); err != nil {
		return nil, err
	}
	if p.defaultTier, err = p.chooseTier(ctx, cfg.DefaultTier, log); err != nil {
		return nil, err
	}
	st, err := sqlite.Open(ctx, filepath.Join(cfg.DataDir, "state.db"))
	if err != nil {
		return nil, err
	}
	p.state = st
	p.closing(st.Close)
	im, err := store.Open(ctx, store.Options{Dir: filepath.Join(cfg.DataDir, "templates"), CacheDir: cfg.CacheDir, Logger: log})
	if err != nil {
		return nil, err
	}
	p.images = im
	p.closing(im.Close)
	if err := p.openSnapshots(ctx, cfg, log); err != nil {
		return nil, err
	}
	return p, nil
}

// closing has close called when the parts are closed, and its error kept.
func (p *parts) closing(close func() error) {
	p.undo.Add(func() {
		if err := close(); err != nil {
			p.errs = append(p.errs, err)
		}
	})
}

// close closes the parts, last first.
func (p *parts) close() error {
	p.undo.Run()
	return errors.Join(p.errs...)
}

// openDrivers makes the drivers of this build, or takes the ones given.
func (p *parts) openDrivers(ctx context.Context, cfg config.Config, drivers []driver.Driver, log *slog.Logger) error {
	if drivers == nil {
		run := filepath.Join(cfg.DataDir, "run")
		if err := os.MkdirAll(run, 0o700); err != nil {
			return &carrel.Error{Op: "open data directory", Kind: carrel.Internal, Err: err}
		}
		if err := p.openWire(cfg, log); err != nil {
			return err
		}
		drivers = p.openReal(ctx, cfg, run, log)
		drivers = append(drivers, p.openSim(ctx, log))
	}
	p.registry = driver.NewRegistry(drivers...)
	p.closing(p.registry.Close)
	return nil
}

// openSim makes the driver of simulated sandboxes: in worker processes, or in this one where there can be none.
func (p *parts) openSim(ctx context.Context, log *slog.Logger) driver.Driver {
	pool, err := sim.NewPool(sim.PoolOptions{Logger: log, Local: p.door.ServeConn, Network: p.wire})
	if err == nil {
		if err = pool.Probe(ctx); err == nil {
			return pool
		}
		_ = pool.Close() // it has nothing yet
	}
	log.Warn("simulated sandboxes run in this process, without walls of their own", "err", err, "hint", carrel.HintOf(err))
	return sim.New(sim.Options{Logger: log, Local: p.door.ServeConn, Link: sim.LinkBy(p.wire, inside)})
}

// inside makes a simulated sandbox's end of its link.
func inside(fd *os.File, mtu int) (sim.Inside, error) { return wire.NewInside(fd, mtu) }

// openReal makes the drivers that run real programs, as far as they can be made. The keeper holds their
// links while no daemon runs; where it can't be had, sandboxes end with the daemon.
func (p *parts) openReal(ctx context.Context, cfg config.Config, run string, log *slog.Logger) (drivers []driver.Driver) {
	var err error
	if p.guestImage, err = guestbin.Extract(filepath.Join(cfg.DataDir, "guest")); err != nil {
		p.lack("gvisor", carrel.GVisor, err)
		p.lack("ns", carrel.NS, err)
		return nil
	}
	at := func(name string) hosted.Options {
		return hosted.Options{Root: filepath.Join(run, name), Network: p.wire, Log: log}
	}
	gopts := gvisor.Options{Options: at("gvisor"), Blanks: cfg.BlankSentries}
	if gopts.Executable, err = sentrybin.Extract(filepath.Join(cfg.CacheDir, "sentry")); err != nil {
		log.Info("sandboxes' kernels run this whole binary, which takes them longer to start", "err", err)
	}
	nopts := ns.Options{Options: at("ns"), Files: p.imageFiles}
	if !p.passing {
		if k, err := p.openKeeper(ctx, log, filepath.Join(run, "keeper.sock")); err != nil {
			log.Warn("no keeper: sandboxes will not outlive the daemon", "err", err)
		} else {
			gopts.Keeper, nopts.Keeper = k, k
		}
	}
	if d, err := gvisor.New(gopts); err != nil {
		p.lack("gvisor", carrel.GVisor, err)
	} else {
		drivers = append(drivers, d)
	}
	if d, err := ns.New(nopts); err != nil {
		p.lack("ns", carrel.NS, err)
	} else {
		drivers = append(drivers, d)
	}
	return drivers
}

// imageFiles opens an image for a driver that can't mount it. The store is opened after the drivers.
func (p *parts) imageFiles(ctx context.Context, path string) (image.Files, error) {
	if p.images == nil {
		return nil, &carrel.Error{Op: "read template", Kind: carrel.Unavailable, Err: errors.New("the templates are not open yet")}
	}
	return p.images.Files(ctx, path)
}

func (p *parts) openKeeper(ctx context.Context, log *slog.Logger, socket string) (*keeper.Client, error) {
	if !reexec.Ready() { // the child would run this program's own main
		return nil, errors.New("this program can't start itself as the keeper")
	}
	if err := keeper.Start(ctx, "", socket); err != nil {
		return nil, err
	}
	k, err := keeper.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	k.Revive(func(ctx context.Context) error { return keeper.Start(ctx, "", socket) }, func(files int, err error) {
		if err != nil {
			log.Error("the keeper was killed and could not be started again: what runs now is lost if this daemon dies, too", "socket", socket, "err", err)
			return
		}
		log.Warn("the keeper was killed; a new one has the links of all that runs", "socket", socket, "links", files)
	})
	p.closing(k.Close)
	return k, nil
}

// lack remembers a driver that could not be made.
func (p *parts) lack(name string, tier carrel.Tier, err error) {
	p.missing = append(p.missing, api.DriverReport{Driver: name, Tier: tier, Problem: err.Error(), Hint: carrel.HintOf(err)})
}

// networks is what takes sandboxes' network rules; nil where the drivers given
// have no wire of ours.
func (p *parts) networks() service.Networks {
	if p.wire == nil {
		return nil
	}
	return p.wire
}

// chooseTier returns the tier asked for, which must be there, or the strongest
// that works on this host.
func (p *parts) chooseTier(ctx context.Context, asked carrel.Tier, log *slog.Logger) (carrel.Tier, error) {
	if asked != "" {
		d, err := p.registry.Get(asked)
		if err != nil {
			return "", err
		}
		if err := d.Probe(ctx); err != nil {
			log.Warn("the default tier does not work on this host", "tier", asked, "err", err, "hint", carrel.HintOf(err))
		}
		return asked, nil
	}
	for _, t := range strongest {
		d, err := p.registry.Get(t)
		if err != nil {
			continue
		}
		if err := d.Probe(ctx); err != nil {
			log.Warn("tier does not work on this host", "tier", t, "err", err, "hint", carrel.HintOf(err))
			continue
		}
		return t, nil
	}
	return "", &carrel.Error{Op: "choose tier", Kind: carrel.Unsupported, Err: errors.New("no tier works on this host"), Hint: "see: carrel doctor"}
}

// prepare makes the built-in template ahead of the first sandbox, where one with
// real processes will want it, and again when this machine's tools have changed.
func (p *parts) prepare(ctx context.Context, log *slog.Logger) {
	d, err := p.registry.Get(p.defaultTier)
	if err != nil || !d.Info().Capabilities.RealProcesses {
		return
	}
	if err := p.images.Prepare(ctx, image.Base, nil); err != nil && ctx.Err() == nil {
		log.Warn("prepare the base template", "err", err, "hint", carrel.HintOf(err))
	}
}

// report says of each driver whether it works here.
func (p *parts) report(ctx context.Context) []api.DriverReport {
	out := []api.DriverReport{}
	for _, d := range p.registry.All() {
		info := d.Info()
		row := api.DriverReport{Driver: info.Name, Tier: info.Tier, OK: true, Default: info.Tier == p.defaultTier}
		if err := d.Probe(ctx); err != nil {
			row.OK, row.Problem, row.Hint = false, err.Error(), carrel.HintOf(err)
		}
		if r, ok := driver.As[driver.Reporter](d); ok {
			for _, f := range r.Report(ctx) {
				row.Findings = append(row.Findings, api.Finding(f))
			}
		}
		out = append(out, row)
	}
	return append(out, p.missing...)
}
