package assembly

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/store"
)

// Tend does a lasting service's slow work until ctx ends. It makes the template host,
// removes content that no snapshot uses, and writes when keys were last used.
func (a *Assembly) Tend(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { a.prepare(ctx) })
	wg.Go(func() { a.collect(ctx) })
	wg.Go(func() { a.checkImages(ctx) })
	wg.Go(func() { a.thinImages(ctx) })
	wg.Go(func() { a.directory.Tend(ctx) })
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

// The images of templates that nobody used for thinUnused are made thin, where that saves space.
// Those that others need sooner are made thin when they have more than thinBudget bytes together.
const (
	thinEvery  = 5 * time.Minute
	thinUnused = time.Hour
	thinYoung  = 2 * time.Minute
	thinBudget = 4 << 30
)

// thinImages makes images thin from time to time, with a low priority, until ctx ends.
func (a *Assembly) thinImages(ctx context.Context) {
	runtime.LockOSThread() // the thread ends with this goroutine, and its priority with it
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 15)
	for {
		select {
		case <-time.After(thinEvery):
		case <-ctx.Done():
			return
		}
		thin, err := a.images.Thin(ctx, image.ThinOptions{Unused: thinUnused, Young: thinYoung,
			Budget: thinBudget})
		if err != nil && ctx.Err() == nil {
			a.log.Warn("make unused templates thin", "err", err, "hint", carrel.HintOf(err))
		}
		saved := int64(0)
		for _, img := range thin {
			saved += img.Size
		}
		if saved > 0 {
			a.log.Info("made the images of unused templates thin", "templates", len(thin), "saved", saved)
		}
	}
}

// prepare makes the template host before the first sandbox needs it, if there is a tier with real
// processes and if it is the default template or stands in for it. It makes it again when this
// machine's tools have changed.
func (a *Assembly) prepare(ctx context.Context) {
	if !slices.Contains([]string{image.Base, store.BaseID, image.Host, store.HostID},
		a.cfg.DefaultTemplate) {
		return // some gigabytes that perhaps nobody asks for
	}
	d, err := a.drivers.Get(a.Tier)
	if err != nil || !d.Info().Capabilities.RealProcesses {
		return
	}
	if err := a.images.Prepare(ctx, nil); err != nil && ctx.Err() == nil {
		a.log.Warn("prepare the host template", "err", err, "hint", carrel.HintOf(err))
	}
}

// The pauses before a collection of unused snapshot content. Deletions come in groups, so a
// collection waits a little after the first. A collection of a shared store also reads other
// machines' manifests. The next collection waits collectRest times as long as the last one took.
const (
	collectSoon       = 20 * time.Second
	collectSoonShared = 5 * time.Minute
	collectEvery      = 15 * time.Minute
	collectRest       = 20
	// collectSharedEvery is for the collections of a shared store that no deletion here caused.
	collectSharedEvery = 6 * time.Hour
	collectAtOnce      = 1 << 30 // bytes of unused content that don't wait
)

// collect removes content that no snapshot uses, soon after deletions and from time to time, until
// ctx ends.
func (a *Assembly) collect(ctx context.Context) {
	soon := collectSoon
	if a.cfg.SnapshotStore != "" {
		soon = collectSoonShared
	}
	tick := time.NewTicker(collectEvery)
	defer tick.Stop()
	var rest time.Duration
	for {
		left, _ := a.Snapshots.Unused()
		select {
		case <-left:
			if !a.awaitMore(ctx, max(soon, rest)) {
				return
			}
		case <-tick.C:
			if a.cfg.SnapshotStore != "" && time.Since(a.collected) < collectSharedEvery {
				continue
			}
		case <-ctx.Done():
			return
		}
		began := time.Now()
		switch got, err := a.Snapshots.GC(ctx); {
		case ctx.Err() != nil:
		case err != nil:
			a.log.Warn("collect unused snapshot content", "err", err, "hint", carrel.HintOf(err))
		case got.Freed > 0:
			a.log.Info("collected unused snapshot content", "packs", got.Packs, "bytes", got.Freed)
		}
		a.collected, rest = time.Now(), collectRest*time.Since(began)
	}
}

// awaitMore waits for more deletions, unless there is too much unused content already. It reports
// whether ctx is still alive.
func (a *Assembly) awaitMore(ctx context.Context, most time.Duration) bool {
	end := time.Now().Add(most)
	for time.Now().Before(end) {
		if _, bytes := a.Snapshots.Unused(); bytes > collectAtOnce {
			return ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(min(time.Second, time.Until(end))):
		}
	}
	return true
}
