package assembly

import (
	"context"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/store"
)

// Tend does a lasting service's slow work until ctx ends. It makes the built-in template, and
// removes content that no snapshot uses.
func (a *Assembly) Tend(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { a.prepare(ctx) })
	wg.Go(func() { a.collect(ctx) })
	wg.Go(func() { a.checkImages(ctx) })
	wg.Wait()
}

// The times of the check of all images. It reads at most 1 MiB in each checkPause.
const (
	checkFirst = 10 * time.Minute
	checkEvery = 6 * time.Hour
	checkPause = 25 * time.Millisecond
)

// checkImages reads all images from time to time, with a low priority, until ctx ends.
func (a *Assembly) checkImages(ctx context.Context) {
	runtime.LockOSThread() // the thread ends with this goroutine, and its priority with it
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 15)
	for wait := checkFirst; ; wait = checkEvery {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		a.images.CheckImages(ctx, checkPause)
		if err := a.guestCheck.whole(); err != nil {
			a.log.Error("the guest's image", "err", err, "hint", carrel.HintOf(err))
		}
	}
}

// prepare makes the built-in template before the first sandbox needs it, if there is a tier with
// real processes and if it is the default template. It makes it again when this machine's tools
// have changed.
func (a *Assembly) prepare(ctx context.Context) {
	if t := a.cfg.DefaultTemplate; t != image.Base && t != store.BaseID {
		return // some gigabytes that perhaps nobody asks for
	}
	d, err := a.drivers.Get(a.Tier)
	if err != nil || !d.Info().Capabilities.RealProcesses {
		return
	}
	if err := a.images.Prepare(ctx, nil); err != nil && ctx.Err() == nil {
		a.log.Warn("prepare the base template", "err", err, "hint", carrel.HintOf(err))
	}
}

// The pauses between two collections of unused snapshot content. A collection of a shared store
// also reads other machines' manifests.
const (
	collectEvery       = 15 * time.Minute
	collectSharedEvery = 6 * time.Hour
)

// collect removes content that no snapshot uses, from time to time, until ctx ends.
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
		if err := a.Service.CollectBuilds(ctx); err != nil && ctx.Err() == nil {
			a.log.Warn("drop kept builds", "err", err, "hint", carrel.HintOf(err))
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
