package local

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"sync"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/gvisor"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/guest/guestbin"
)

// lazyGVisor is the gvisor driver, opened when somebody wants it: most programs
// want simulated sandboxes, and those should leave no trace on the host.
type lazyGVisor struct {
	dir string
	net driver.Network

	mu     sync.Mutex
	opened bool
	drv    driver.Driver
	guest  string
	err    error
}

var (
	_ driver.Driver   = (*lazyGVisor)(nil)
	_ driver.Restorer = (*lazyGVisor)(nil)
)

func newGVisor(dir string, net driver.Network) *lazyGVisor { return &lazyGVisor{dir: dir, net: net} }

// open opens the driver once.
func (g *lazyGVisor) open() (driver.Driver, string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.opened {
		g.opened = true
		if g.guest, g.err = guestbin.Extract(filepath.Join(g.dir, "guest")); g.err == nil {
			g.drv, g.err = gvisor.New(gvisor.Options{Options: hosted.Options{Root: filepath.Join(g.dir, "gvisor"), Network: g.net}})
		}
	}
	return g.drv, g.guest, g.err
}

// Info implements driver.Driver. The limits that this host can't enforce are
// known once the driver is open, so none is promised.
func (g *lazyGVisor) Info() driver.Info {
	return driver.Info{Name: "gvisor", Tier: carrel.GVisor, Capabilities: driver.Capabilities{
		RealProcesses: true, Isolation: true, Snapshot: true, MemorySnapshot: true}}
}

// Probe implements driver.Driver.
func (g *lazyGVisor) Probe(ctx context.Context) error {
	d, _, err := g.open()
	if err != nil {
		return err
	}
	return d.Probe(ctx)
}

// Create implements driver.Driver.
func (g *lazyGVisor) Create(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	d, guest, err := g.open()
	if err != nil {
		return nil, err
	}
	spec.Guest = guest
	return d.Create(ctx, spec)
}

// restorer is the driver's other part.
func (g *lazyGVisor) restorer() (driver.Restorer, string, error) {
	d, guest, err := g.open()
	if err != nil {
		return nil, "", err
	}
	r, ok := driver.As[driver.Restorer](d)
	if !ok {
		return nil, "", &carrel.Error{Op: "restore sandbox", Kind: carrel.Unsupported, Err: errors.New("this driver restores nothing")}
	}
	return r, guest, nil
}

// CanRestore implements driver.Restorer.
func (g *lazyGVisor) CanRestore(info driver.SnapshotInfo, opts driver.RestoreOptions) error {
	r, _, err := g.restorer()
	if err != nil {
		return err
	}
	return r.CanRestore(info, opts)
}

// Restore implements driver.Restorer.
func (g *lazyGVisor) Restore(ctx context.Context, dir string, info driver.SnapshotInfo, spec driver.Spec, opts driver.RestoreOptions) (driver.Instance, error) {
	r, guest, err := g.restorer()
	if err != nil {
		return nil, err
	}
	spec.Guest = guest
	return r.Restore(ctx, dir, info, spec, opts)
}

// SnapshotFiles implements driver.Restorer.
func (g *lazyGVisor) SnapshotFiles(ctx context.Context, dir string, info driver.SnapshotInfo, spec driver.Spec) (io.ReadCloser, error) {
	r, guest, err := g.restorer()
	if err != nil {
		return nil, err
	}
	spec.Guest = guest
	return r.SnapshotFiles(ctx, dir, info, spec)
}

// Recover implements driver.Driver: no sandbox outlives the service.
func (g *lazyGVisor) Recover(context.Context, driver.Handle) (driver.Instance, error) {
	return nil, &carrel.Error{Op: "recover sandbox", Kind: carrel.NotFound, Err: errors.New("it ended with the program that made it")}
}

// Close implements driver.Driver.
func (g *lazyGVisor) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opened = true
	g.err = &carrel.Error{Op: "open gvisor driver", Kind: carrel.Unavailable, Err: errors.New("the service is closed")}
	if g.drv == nil {
		return nil
	}
	return g.drv.Close()
}
