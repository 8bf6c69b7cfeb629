package assembly

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
)

// deferred is a driver of a passing service that is opened at its first use. Most programs use only
// simulated sandboxes, and then no trace is left on the host.
type deferred struct {
	name   string
	tier   carrel.Tier
	memory bool                          // its snapshots hold memory, too
	watch  func() error                  // ensures that nothing of the driver outlives this process
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

// open opens the driver on the first call that succeeds. It returns the driver and the guest's
// image.
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

// Info implements driver.Driver. Only an open driver knows which limits this host can't enforce. So
// before that Info promises none.
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

// Create implements driver.Driver. Error: Unsupported, with what this host lacks, as from Probe.
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
	// Nobody has called Probe yet. Its error says more than the error of the step that failed.
	if lacks := drv.Probe(ctx); lacks != nil && ctx.Err() == nil {
		return nil, lacks
	}
	return nil, err
}

// restorer returns the driver as a Restorer.
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

// Recover implements driver.Driver. No sandbox outlives the service.
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
