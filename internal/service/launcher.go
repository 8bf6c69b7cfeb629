package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/trace"
)

// launcher calls drivers to create and to destroy instances.
type launcher struct {
	opts     *Options
	log      *slog.Logger
	table    *table
	roots    *roots
	resolver *resolver
	builds   *builds
	probes   probes
}

// probes remembers the drivers that work. A driver that failed is asked again by the next creation,
// because its host may have been repaired.
type probes struct {
	mu sync.Mutex
	by map[carrel.Tier]*probe
}

type probe struct {
	done chan struct{}
	err  error // set before done is closed
}

const probeTime = 30 * time.Second

// probe makes sure that a driver works on this host.
func (la *launcher) probe(ctx context.Context, d driver.Driver) error {
	tier := d.Info().Tier
	la.probes.mu.Lock()
	p, asked := la.probes.by[tier]
	if !asked {
		p = &probe{done: make(chan struct{})}
		if la.probes.by == nil {
			la.probes.by = map[carrel.Tier]*probe{}
		}
		la.probes.by[tier] = p
	}
	la.probes.mu.Unlock()
	if !asked && !la.table.spawn(func() { la.ask(d, tier, p) }) {
		p.err = &carrel.Error{Op: "probe driver", Kind: carrel.Unavailable, Err: errClosing}
		close(p.done)
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return &carrel.Error{Op: "probe driver", Kind: carrel.TimedOut, Err: context.Cause(ctx)}
	}
}

// ask runs one probe for all callers that wait for it.
func (la *launcher) ask(d driver.Driver, tier carrel.Tier, p *probe) {
	ctx, cancel := context.WithTimeout(la.table.ctx, probeTime)
	defer cancel()
	p.err = d.Probe(ctx)
	if p.err != nil {
		la.probes.mu.Lock()
		delete(la.probes.by, tier)
		la.probes.mu.Unlock()
	}
	close(p.done)
}

// home finds the driver and the root image of a record. digest is the driver's name of the image
// that a snapshot of it needs, for an error; "" is not known.
func (la *launcher) home(ctx context.Context, rec state.Record,
	digest string) (driver.Driver, driver.Root, error) {
	drv, err := la.opts.Drivers.Get(rec.Sandbox.Tier)
	if err != nil {
		return nil, driver.Root{}, err
	}
	if err := la.probe(ctx, drv); err != nil {
		return nil, driver.Root{}, err
	}
	if path, ok := la.roots.rootPath(rec.Root); ok {
		return drv, driver.Root{Image: path}, nil
	}
	img, err := la.resolver.recorded(ctx, rec.Sandbox)
	if carrel.KindOf(err) == carrel.NotFound && rec.Root != "" {
		return nil, driver.Root{}, la.roots.missing(rec, digest, err)
	}
	if err != nil {
		return nil, driver.Root{}, &carrel.Error{Kind: carrel.KindOf(err), Field: "template",
			Err:  fmt.Errorf("its template %s (%s) is not on this machine: %w", rec.Sandbox.Template, rec.Sandbox.Alias, err),
			Hint: "import or pull the same image here under that name"}
	}
	return drv, driver.Root{Image: img.Path}, nil
}

// stand makes a driver build an instance. If from is nil, it starts from nothing.
func (la *launcher) stand(ctx context.Context, b *box, drv driver.Driver, root driver.Root, from *origin) (driver.Instance, *line, error) {
	if check := la.opts.CheckGuest; check != nil {
		if err := check(); err != nil {
			return nil, nil, err
		}
	}
	spec := driver.Spec{ID: b.id, Root: root, Guest: la.guestImage(b, from), Dir: b.dir, Limits: b.public().Limits}
	ctx, span := trace.Start(ctx, "driver")
	defer span.End()
	span.Set("driver", drv.Info().Name)
	var inst driver.Instance
	var err error
	foreign := from != nil && from.info.Driver != drv.Info().Name
	if from == nil || foreign {
		inst, err = drv.Create(ctx, spec)
	} else {
		r, err := restorer(drv)
		if err != nil {
			return nil, nil, err
		}
		if err := la.builds.fetch(ctx, drv, from.info); err != nil {
			return nil, nil, err
		}
		opts := driver.RestoreOptions{FilesOnly: from.filesOnly, Later: from.later, SameBoot: from.sameBoot}
		if err := r.CanRestore(from.info, opts); err != nil {
			return nil, nil, err
		}
		if inst, err = r.Restore(ctx, from.files.Dir(), from.info, spec, opts); isOtherRoot(err) {
			inst, err = la.restoreOnHost(ctx, b.record(), r, from, spec, opts, err)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return inst, &line{inst: inst, fresh: from.boots(), restored: !from.boots(), pour: foreign}, nil
}

// restoreOnHost restores a snapshot that does not lie on its template's image, which refused says.
// Older programs made base of this machine's tools, and their records name base. So a snapshot of
// base may lie on the image of host.
func (la *launcher) restoreOnHost(ctx context.Context, rec state.Record, r driver.Restorer,
	from *origin, spec driver.Spec, opts driver.RestoreOptions,
	refused error) (driver.Instance, error) {
	if path := la.resolver.formerBase(ctx, rec.Sandbox.Template); path != "" {
		spec.Root.Image = path
		inst, err := r.Restore(ctx, from.files.Dir(), from.info, spec, opts)
		if !isOtherRoot(err) {
			return inst, err
		}
	}
	return nil, la.roots.missing(rec, from.info.Root, refused)
}

// guestImage chooses the guest's image and writes its name into the record. A sandbox that boots
// gets this build's image. A restored one gets the image that it was running, if that still lies
// beside it.
func (la *launcher) guestImage(b *box, from *origin) string {
	own := la.opts.GuestImage
	b.mu.Lock()
	defer b.mu.Unlock()
	if name := b.rec.Guest; !from.boots() && name != "" && name == filepath.Base(name) {
		old := filepath.Join(filepath.Dir(own), name)
		if _, err := os.Stat(old); err == nil {
			return old
		}
	}
	b.rec.Guest = filepath.Base(own)
	return own
}

// destroy undoes a driver's Create or Restore.
func (la *launcher) destroy(b *box, inst driver.Instance) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(la.table.ctx), undoTime)
	defer cancel()
	if err := inst.Destroy(ctx); err != nil {
		la.log.Error("destroy sandbox", "sandbox", b.id, "err", err)
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.rec.Sandbox.State == carrel.Resuming {
			b.left = inst // tried again before the next resumption
			return
		}
		b.failed = &verdict{carrel.EndCrashed, "its creation failed"}
	}
}

// letGo releases the snapshot that an instance was made from after all of it has been read.
func (la *launcher) letGo(id carrel.ID, inst driver.Instance, from *origin) {
	if from == nil {
		return
	}
	l, ok := driver.As[driver.Loader](inst)
	if !ok || !la.table.spawn(func() {
		defer from.release()
		if err := l.Loaded(la.table.ctx); err != nil && la.table.ctx.Err() == nil && !errors.Is(err, carrel.Unavailable) { // it ended before
			la.log.Error("read the rest of a snapshot", "sandbox", id, "snapshot", from.id, "err", err)
		}
	}) {
		from.release()
	}
}
