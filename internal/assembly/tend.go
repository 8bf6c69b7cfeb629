package assembly

import (
	"context"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
)

// Tend does a lasting service's slow work until ctx ends: it makes the built-in template, and removes what no snapshot uses.
func (a *Assembly) Tend(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { a.prepare(ctx) })
	wg.Go(func() { a.collect(ctx) })
	wg.Wait()
}

// prepare makes the built-in template ahead of the first sandbox, where one with
// real processes will want it, and again when this machine's tools have changed.
func (a *Assembly) prepare(ctx context.Context) {
	d, err := a.drivers.Get(a.Tier)
	if err != nil || !d.Info().Capabilities.RealProcesses {
		return
	}
	if err := a.images.Prepare(ctx, nil); err != nil && ctx.Err() == nil {
		a.log.Warn("prepare the base template", "err", err, "hint", carrel.HintOf(err))
	}
}

// How often the store is asked to remove what no snapshot uses. A shared one is
// read through for that, other machines' manifests included.
const (
	collectEvery       = 15 * time.Minute
	collectSharedEvery = 6 * time.Hour
)

// collect removes what no snapshot uses, now and then, until ctx ends.
func (a *Assembly) collect(ctx context.Context) {
	every := collectEvery
	if a.cfg.SnapshotStore != "" {
		every = collectSharedEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		switch got, err := a.Snapshots.GC(ctx); {
		case ctx.Err() != nil:
		case err != nil:
			a.log.Warn("collect unused snapshot content", "err", err, "hint", carrel.HintOf(err))
		case got.Freed > 0:
			a.log.Info("collected unused snapshot content", "packs", got.Packs, "bytes", got.Freed)
		}
	}
}
