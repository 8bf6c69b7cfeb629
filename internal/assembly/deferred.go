package assembly

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
)

// deferred is a driver of a passing service that is opened when somebody wants it: most programs
// want simulated sandboxes, and those should leave no trace on the host.
type deferred struct {
	name   string
	tier   carrel.Tier
	memory bool                          // its snapshots hold memory, too
	watch  func() error                  // sees to it that nothing of the driver stays when this process ends
	guest  func() (string, error)        // writes the guest's image
	make   func() (driver.Driver, error) // opens the driver

	mu     sync.Mutex
	closed bool
	drv    driver.Driver // nil until it is open
	image  string        // the guest's
}

var (
	_ driver.Driver   = (*deferred)(nil)
	_ driver.Restorer = (*deferred)(nil)
)

// open opens the driver, once it can be opened, and returns it with the guest's image.
func (d *deferred) open() (driver.Driver, string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, "", &carrel.Error{Op: "open " + d.name + " driver", Kind: carrel.Unavailable, Err: errors.New("the service is closed")}
	}
	if d.drv != nil {
		return d.drv, d.image, nil
	}
	if err := d.watch(); err != nil {
		return nil, "", err
	}
	image, err := d.guest()
	if err != nil {
		return nil, "", err
	}
	drv, err := d.make()
	if err != nil {
		return nil, "", err
	}
	d.drv, d.image = drv, image
	return drv, image, nil
}

// Info implements driver.Driver. The limits that this host can't enforce are
// known once the driver is open, so none is promised before.
func (d *deferred) Info() driver.Info {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.drv != nil {
		return d.drv.Info()
	}
	return driver.Info{Name: d.name, Tier: d.tier, Capabilities: driver.Capabilities{
		RealProcesses: true, Isolation: true, Snapshot: true, MemorySnapshot: d.memory}}
}

// Probe implements driver.Driver.
func (d *deferred) Probe(ctx context.Context) error {
	drv, _, err := d.open()
	if err != nil {
		return err
	}
	return drv.Probe(ctx)
}

// Create implements driver.Driver. Error: Unsupported, saying what this host lacks, as from Probe.
func (d *deferred) Create(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	drv, guest, err := d.open()
	if err != nil {
		return nil, err
	}
	spec.Guest = guest
	in, err := drv.Create(ctx, spec)
	if err == nil {
		return in, nil
	}
	// Nobody has asked yet what this host lacks. It says more than the step that failed for want of it.
	if lacks := drv.Probe(ctx); lacks != nil && ctx.Err() == nil {
		return nil, lacks
	}
	return nil, err
}

// restorer is the driver's other part.
func (d *deferred) restorer() (driver.Restorer, string, error) {
	drv, guest, err := d.open()
	if err != nil {
		return nil, "", err
	}
	r, ok := driver.As[driver.Restorer](drv)
	if !ok {
		return nil, "", &carrel.Error{Op: "restore sandbox", Kind: carrel.Unsupported, Err: errors.New("this driver restores nothing")}
	}
	return r, guest, nil
}

// CanRestore implements driver.Restorer.
func (d *deferred) CanRestore(info driver.SnapshotInfo, opts driver.RestoreOptions) error {
	r, _, err := d.restorer()
	if err != nil {
		return err
	}
	return r.CanRestore(info, opts)
}

// Restore implements driver.Restorer.
func (d *deferred) Restore(ctx context.Context, dir string, info driver.SnapshotInfo, spec driver.Spec, opts driver.RestoreOptions) (driver.Instance, error) {
	r, guest, err := d.restorer()
	if err != nil {
		return nil, err
	}
	spec.Guest = guest
	return r.Restore(ctx, dir, info, spec, opts)
}

// SnapshotFiles implements driver.Restorer.
func (d *deferred) SnapshotFiles(ctx context.Context, dir string, info driver.SnapshotInfo, spec driver.Spec) (io.ReadCloser, error) {
	r, guest, err := d.restorer()
	if err != nil {
		return nil, err
	}
	spec.Guest = guest
	return r.SnapshotFiles(ctx, dir, info, spec)
}

// Recover implements driver.Driver: no sandbox outlives the service.
func (d *deferred) Recover(context.Context, driver.Handle) (driver.Instance, error) {
	return nil, &carrel.Error{Op: "recover sandbox", Kind: carrel.NotFound, Err: errors.New("it ended with the program that made it")}
}

// Close implements driver.Driver.
func (d *deferred) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed = true; d.drv == nil {
		return nil
	}
	drv := d.drv
	d.drv = nil
	return drv.Close()
}
