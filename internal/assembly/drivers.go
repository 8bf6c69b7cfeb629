package assembly

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/gvisor"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/driver/microvm"
	"github.com/carrel-dev/carrel/internal/driver/ns"
	"github.com/carrel-dev/carrel/internal/driver/sim"
	"github.com/carrel-dev/carrel/internal/guest/guestbin"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/filler"
	"github.com/carrel-dev/carrel/internal/keeper"
	"github.com/carrel-dev/carrel/internal/reexec"
	"github.com/carrel-dev/carrel/internal/service"
	"github.com/carrel-dev/carrel/internal/wire"
)

// Parts returns the parts that a program with an assembly plays when a driver starts it again. Its
// main, or an init function, passes them to [reexec.Run] first of all.
func Parts() reexec.Parts {
	all := reexec.Parts{}
	for _, table := range []reexec.Parts{gvisor.Parts(), ns.Parts(), microvm.Parts(), sim.Parts(inside), keeper.Parts(),
		filler.Parts()} {
		maps.Copy(all, table)
	}
	all[reaperName] = reap
	return all
}

// inside makes a simulated sandbox's end of its link.
func inside(fd *os.File, mtu int) (sim.Inside, error) { return wire.NewInside(fd, mtu) }

// strongest lists the tiers that a service chooses its default from. MicroVM is not among them: by
// emulation it is slow, and its first probe boots a machine.
var strongest = []carrel.Tier{carrel.GVisor, carrel.NS, carrel.Sim}

// openDrivers makes the drivers of this build, or uses Options.Drivers.
func (a *Assembly) openDrivers(ctx context.Context) error {
	drivers := a.opts.Drivers
	if drivers == nil {
		if err := a.openWire(); err != nil {
			return err
		}
		var err error
		if a.passing() {
			drivers = a.passingDrivers()
		} else if drivers, err = a.lastingDrivers(ctx); err != nil {
			return err
		}
	}
	a.drivers = driver.NewRegistry(drivers...)
	a.closing(a.drivers.Close)
	return nil
}

// passingDrivers returns the drivers of a passing service: the simulation in this process, and the
// deferred drivers of real sandboxes.
func (a *Assembly) passingDrivers() []driver.Driver {
	guest := sync.OnceValues(func() (string, error) { return guestbin.Extract(filepath.Join(a.dir, "guest")) })
	return []driver.Driver{
		sim.New(sim.Options{Logger: a.log, Programs: a.opts.Programs, Local: a.door.ServeConn, Link: sim.LinkBy(a.wire, inside)}),
		&deferred{name: "gvisor", tier: carrel.GVisor, watch: a.scratch.watch, guest: guest, memory: true, make: func() (driver.Driver, error) {
			return gvisor.New(gvisor.Options{Options: a.hosted("gvisor")})
		}},
		&deferred{name: "ns", tier: carrel.NS, watch: a.scratch.watch, guest: guest, make: func() (driver.Driver, error) {
			return ns.New(ns.Options{Options: a.hosted("ns"), Files: a.imageFiles})
		}},
	}
}

// hosted returns the options of a driver with real processes.
func (a *Assembly) hosted(name string) hosted.Options {
	o := hosted.Options{Root: filepath.Join(a.dir, driversDir, name), Network: a.wire, Log: a.log}
	if a.home != nil {
		o.Identity, o.Home = a.home.ID, a.dir
	}
	return o
}

// lastingDrivers returns the drivers of a lasting service. It leaves out those that can't be made.
func (a *Assembly) lastingDrivers(ctx context.Context) ([]driver.Driver, error) {
	if err := os.MkdirAll(filepath.Join(a.dir, driversDir), 0o700); err != nil {
		return nil, &carrel.Error{Op: "open data directory", Kind: carrel.Internal, Err: err}
	}
	a.openKernels()
	return append(a.openReal(ctx), a.openSim(ctx)), nil
}

// openSim makes the driver of simulated sandboxes. They run in worker processes if that is
// possible, else in this process.
func (a *Assembly) openSim(ctx context.Context) driver.Driver {
	pool, err := sim.NewPool(sim.PoolOptions{Logger: a.log, Local: a.door.ServeConn, Network: a.wire})
	if err == nil {
		if err = pool.Probe(ctx); err == nil {
			return pool
		}
		_ = pool.Close() // it holds nothing yet
	}
	a.log.Warn("simulated sandboxes run in this process, without walls of their own", "err", err, "hint", carrel.HintOf(err))
	return sim.New(sim.Options{Logger: a.log, Local: a.door.ServeConn, Link: sim.LinkBy(a.wire, inside)})
}

// openReal makes the drivers that run real programs. It leaves out those that can't be made. The
// keeper holds their links while no daemon runs. Without a keeper, sandboxes end with the daemon.
func (a *Assembly) openReal(ctx context.Context) (drivers []driver.Driver) {
	var err error
	if a.guest, err = guestbin.Extract(filepath.Join(a.dir, "guest")); err != nil {
		a.lack("gvisor", carrel.GVisor, err)
		a.lack("ns", carrel.NS, err)
		a.lack("microvm", carrel.MicroVM, err)
		return nil
	}
	a.guestCheck = &guestCheck{path: a.guest}
	gopts := gvisor.Options{Options: a.hosted("gvisor"), Blanks: a.cfg.BlankSentries,
		Kernels: filepath.Join(a.dir, "kernels")}
	if gopts.Executable, err = a.opts.Lasting.Sentry(filepath.Join(a.cfg.CacheDir, "sentry")); err != nil {
		a.log.Info("sandboxes' kernels run this whole binary, which takes them longer to start", "err", err)
	}
	nopts := ns.Options{Options: a.hosted("ns"), Files: a.imageFiles}
	mopts := a.machines()
	if !a.keeperless {
		if k, err := a.openHolders(ctx); err != nil {
			a.log.Warn("no keeper: sandboxes will not outlive the daemon", "err", err)
		} else {
			gopts.Keeper, nopts.Keeper, mopts.Keeper = k, k, k
		}
	}
	if d, err := gvisor.New(gopts); err != nil {
		a.lack("gvisor", carrel.GVisor, err)
	} else {
		drivers = append(drivers, d)
	}
	if d, err := ns.New(nopts); err != nil {
		a.lack("ns", carrel.NS, err)
	} else {
		drivers = append(drivers, d)
	}
	if d, err := microvm.New(mopts); err != nil {
		a.lack("microvm", carrel.MicroVM, err)
	} else {
		drivers = append(drivers, d)
	}
	return drivers
}

// machines returns the options of the driver of virtual machines. Without a kernel or carrel-init it
// says at its first use what it lacks.
func (a *Assembly) machines() microvm.Options {
	o := microvm.Options{Options: a.hosted("microvm"), Engine: a.cfg.MicroVMEngine, Kernel: a.cfg.MicroVMKernel,
		FindKernel: a.kernels.Dir, NoKVM: a.cfg.NoKVM}
	var err error
	if o.Init, err = a.opts.Lasting.VMInit(filepath.Join(a.cfg.CacheDir, "vm")); err != nil {
		a.log.Debug("no virtual machines", "err", err)
	}
	return o
}

// imageFiles opens an image for a driver that can't mount it. The store is opened later than the
// drivers.
func (a *Assembly) imageFiles(ctx context.Context, path string) (image.Files, error) {
	if a.images == nil {
		return nil, &carrel.Error{Op: "read template", Kind: carrel.Unavailable, Err: errors.New("the templates are not open yet")}
	}
	return a.images.Files(ctx, path)
}

// openHolders opens everything that holds the links while no daemon runs. One keeper can be killed
// together with the daemon. So there are two, or one and the supervisor's store.
func (a *Assembly) openHolders(ctx context.Context) (*keeper.Holders, error) {
	names, all := []string{"keeper.sock", "keeper2.sock"}, []keeper.Holder{}
	if a.opts.Supervisor != nil {
		all = append(all, a.opts.Supervisor)
		if os.Getenv(supervisorStores) != "" { // it is known to store them
			names = names[:1]
		}
	}
	var errs []error
	for _, name := range names {
		k, err := a.openKeeper(ctx, filepath.Join(a.dir, driversDir, name))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, k)
	}
	if len(errs) == len(names) {
		return nil, errors.Join(errs...)
	}
	for _, err := range errs {
		a.log.Warn("one of two keepers can't be started", "err", err)
	}
	return keeper.Join(ctx, a.log, all...), nil
}

// supervisorStores is the variable with the size of the supervisor's store. Older supervisors have
// a store and do not set it.
const supervisorStores = "FDSTORE"

func (a *Assembly) openKeeper(ctx context.Context, socket string) (*keeper.Client, error) {
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
			a.log.Error("the keeper was killed and could not be started again: what runs now is lost if this daemon dies, too", "socket", socket, "err", err)
			return
		}
		a.log.Warn("the keeper was killed; a new one has the links of all that runs", "socket", socket, "links", files)
	})
	a.closing(k.Close)
	return k, nil
}

// lack records a driver that could not be made.
func (a *Assembly) lack(name string, tier carrel.Tier, err error) {
	a.missing = append(a.missing, service.Check{Driver: name, Tier: tier, Err: err})
}

// chooseTier returns the configured tier, or else the strongest that works on this host. The
// configured tier must exist. A lasting service opens even if that tier does not work: what it
// needs may come later. A passing one does not open.
func (a *Assembly) chooseTier(ctx context.Context) (carrel.Tier, error) {
	if asked := a.cfg.DefaultTier; asked != "" {
		d, err := a.drivers.Get(asked)
		if err != nil {
			return "", err
		}
		if err := d.Probe(ctx); err != nil {
			if a.passing() {
				return "", err
			}
			a.log.Warn("the default tier does not work on this host", "tier", asked, "err", err, "hint", carrel.HintOf(err))
		}
		return asked, nil
	}
	for _, t := range strongest {
		d, err := a.drivers.Get(t)
		if err != nil {
			continue
		}
		if err := d.Probe(ctx); err != nil {
			a.log.Warn("tier does not work on this host", "tier", t, "err", err, "hint", carrel.HintOf(err))
			continue
		}
		return t, nil
	}
	return "", &carrel.Error{Op: "choose tier", Kind: carrel.Unsupported, Err: errors.New("no tier works on this host"), Hint: "see: carrel doctor"}
}
