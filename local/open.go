package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/access"
	"github.com/carrel-dev/carrel/internal/cleanup"
	"github.com/carrel-dev/carrel/internal/config"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/gvisor"
	"github.com/carrel-dev/carrel/internal/driver/sim"
	"github.com/carrel-dev/carrel/internal/hostdoor"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/store"
	"github.com/carrel-dev/carrel/internal/reexec"
	"github.com/carrel-dev/carrel/internal/service"
	"github.com/carrel-dev/carrel/internal/snapshot/disk"
	snapshots "github.com/carrel-dev/carrel/internal/snapshot/store"
	"github.com/carrel-dev/carrel/internal/state/memory"
)

// init is the one in this module: importing the package is how a program says
// that it wants this, and a sandbox's kernel must start before main does.
func init() {
	if reexec.Run(gvisor.Parts()) {
		os.Exit(0)
	}
	carrel.RegisterOpener(open)
}

// opened is a service and what was opened for it.
type opened struct {
	*access.Service
	once  sync.Once
	undo  cleanup.Stack
	errs  []error
	close error
}

// open implements [carrel.Open].
func open(ctx context.Context, cfg carrel.Config) (_ carrel.Service, err error) {
	const op = "open"
	switch cfg.Tier {
	case "", carrel.Sim, carrel.GVisor:
	default:
		return nil, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "tier", Err: errors.New("no driver for tier " + string(cfg.Tier)),
			Hint: "this build has: gvisor, sim"}
	}
	if err := carrel.CheckPrograms(cfg.Programs); err != nil {
		return nil, err
	}
	o := &opened{}
	defer func() {
		if err != nil {
			o.undo.Run()
		}
	}()
	// Sandboxes' own directories never outlive the service, templates may.
	run, err := os.MkdirTemp("", "carrel-")
	if err != nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
	}
	o.closing(func() error { return os.RemoveAll(run) })
	data := cfg.DataDir
	if data == "" {
		data = run
	}
	images, err := store.Open(ctx, store.Options{Dir: filepath.Join(data, "templates"), CacheDir: config.Default().CacheDir})
	if err != nil {
		return nil, err
	}
	o.closing(images.Close)
	records := memory.Open()
	o.closing(records.Close)
	moments, err := o.openSnapshots(ctx, filepath.Join(run, "snapshots"))
	if err != nil {
		return nil, err
	}
	var door hostdoor.Late // sandboxes' way to the service, which is made later
	out, err := o.openOutside(data, run, &door)
	if err != nil {
		return nil, err
	}
	real := newGVisor(run, out.links)
	drivers := driver.NewRegistry(sim.New(sim.Options{Programs: cfg.Programs, Local: door.ServeConn, Link: sim.LinkBy(out.links, inside)}), real)
	o.closing(drivers.Close)
	if cfg.Tier == carrel.GVisor { // say now what is missing, not after the base template was made
		if err := real.Probe(ctx); err != nil {
			return nil, err
		}
	}
	s, err := service.New(ctx, service.Options{Store: records, Images: images, Drivers: drivers, Networks: out.links, Snapshots: moments,
		Authority: string(out.authority.CertPEM()), Vault: out.vault,
		Dir: filepath.Join(run, "sandboxes"), DefaultTier: cfg.Tier, DefaultTemplate: defaultTemplate(cfg.Tier),
		Limits: cfg.Limits, KillOnClose: true})
	if err != nil {
		return nil, err
	}
	o.closing(s.Close)
	out.service.Open(s)
	o.Service = access.New(access.Options{Core: s, Secrets: out.vault.For, Audits: out.log, Nobody: carrel.Local()})
	h := hostdoor.New(hostdoor.Options{Inside: access.NewAuthenticator().Inside, Moments: o, Generation: s.Generation, Tokens: s.MintToken, Sandbox: o.Get})
	o.closing(h.Close)
	door.Open(h)
	return o, nil
}

// openSnapshots opens a snapshot store that lives as long as the service.
func (o *opened) openSnapshots(ctx context.Context, dir string) (*snapshots.Store, error) {
	blobs, err := disk.Open(filepath.Join(dir, "blobs"))
	if err != nil {
		return nil, err
	}
	o.closing(blobs.Close)
	st, err := snapshots.Open(ctx, snapshots.Options{Dir: dir, Blobs: blobs})
	if err != nil {
		return nil, err
	}
	o.closing(st.Close)
	return st, nil
}

// defaultTemplate is what sandboxes are made from that name none: a simulated one
// must not wait for an image that it does not look at.
func defaultTemplate(t carrel.Tier) string {
	if t == carrel.GVisor {
		return image.Base
	}
	return store.Sim
}

// closing has close called by Close, and its error kept.
func (o *opened) closing(close func() error) {
	o.undo.Add(func() { o.errs = append(o.errs, close()) })
}

// Close kills every sandbox and closes the parts, last first.
func (o *opened) Close() error {
	o.once.Do(func() {
		o.undo.Run()
		o.close = errors.Join(o.errs...)
	})
	return o.close
}
