package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/service/timeline"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

// OnUpgrade says how the memory of a sandbox is saved that another build of Carrel started.
type OnUpgrade string

// The values of OnUpgrade.
const (
	// UpgradeKeep keeps the kernel of that build and saves the memory, which that kernel restores.
	UpgradeKeep OnUpgrade = "keep"
	// UpgradeFiles saves the files only. The sandbox boots on the new build when it resumes.
	UpgradeFiles OnUpgrade = "files"
	// UpgradeRefuse saves nothing.
	UpgradeRefuse OnUpgrade = "refuse"
)

// builds looks after the builds of drivers whose memory snapshots only the build that took them can
// restore (driver.BuildKeeper).
type builds struct {
	opts  *Options
	log   *slog.Logger
	table *table
	snaps *timeline.Index
	lost  *lostAndFound

	mu     sync.Mutex
	shared map[string]time.Time // when a build was last seen in the shared store
	alone  map[carrel.ID]string // sandboxes that this service can't adopt, and why
}

// sharedFor is how long a build that was seen in the shared store is not looked for again. Another
// machine's collection may have removed it meanwhile.
const sharedFor = time.Hour

// fit decides how a sandbox's snapshot is taken, before it is taken: nobody should learn after an
// upgrade that a sandbox can't come back. It may turn w into a snapshot of files only.
func (bl *builds) fit(ctx context.Context, inst driver.Instance, w *wish) error {
	v, ok := driver.As[driver.Versioned](inst)
	if !ok {
		return nil
	}
	name, own := v.Build()
	switch {
	case own:
		// this build can restore it all the same
		if err := v.KeepBuild(ctx); err != nil && ctx.Err() == nil {
			bl.log.Warn("the kernel of this build could not be kept: after an upgrade, the memory of this snapshot can't be restored", "err", err)
		}
		return nil
	case w.filesOnly:
		return nil
	case bl.opts.OnUpgrade == UpgradeFiles:
		w.filesOnly = true
		return nil
	case bl.opts.OnUpgrade == UpgradeRefuse:
		return &carrel.Error{Kind: carrel.Unsupported,
			Err: fmt.Errorf(
				"the sandbox runs on the kernel of another build, %q, and this daemon is told not to save such memory", name),
			Hint: "save its files only (--files-only), or start the daemon with --on-upgrade keep or files"}
	}
	if err := v.KeepBuild(ctx); err != nil {
		return &carrel.Error{Kind: carrel.KindOf(err),
			Err:  fmt.Errorf("its memory could not be restored afterwards: %w", err),
			Hint: "save its files only (--files-only, or carrel serve --on-upgrade files)"}
	}
	return nil
}

// keeper returns the part of a driver that keeps builds, and the name of the driver's own build. It
// returns nil for a driver that keeps none.
func (bl *builds) keeper(ctx context.Context,
	drv driver.Driver) (driver.BuildKeeper, []driver.Build) {
	k, ok := driver.As[driver.BuildKeeper](drv)
	if !ok {
		return nil, nil
	}
	all, err := k.Builds(ctx)
	if err != nil {
		bl.log.Warn("list the kept builds", "driver", drv.Info().Name, "err", err)
	}
	if len(all) == 0 {
		return nil, nil
	}
	return k, all
}

// isOwn reports whether a snapshot is of the driver's own build, or of a driver that has no builds.
func (bl *builds) isOwn(ctx context.Context, drv driver.Driver, info driver.SnapshotInfo) bool {
	k, all := bl.keeper(ctx, drv)
	return k == nil || !info.Memory || slices.ContainsFunc(all,
		func(b driver.Build) bool { return b.Own && b.Name == info.Build })
}

// fetch makes sure that a driver has the build of a snapshot, if the shared store has it.
func (bl *builds) fetch(ctx context.Context, drv driver.Driver, info driver.SnapshotInfo) error {
	st, ok := bl.opts.Snapshots.(snapshot.BuildStore)
	if !ok || !info.Memory {
		return nil
	}
	k, all := bl.keeper(ctx, drv)
	if k == nil || slices.ContainsFunc(all, func(
		b driver.Build) bool {
		return b.Name == info.Build
	}) {
		return nil
	}
	r, err := st.GetBuild(ctx, info.Build)
	if carrel.KindOf(err) == carrel.NotFound {
		return nil // the driver says what is missing
	}
	if err != nil {
		return err
	}
	defer r.Close()
	return k.ImportBuild(ctx, info.Build, r)
}

// shareLater copies a build to the shared store, in the background, if the store is shared.
func (bl *builds) shareLater(drv driver.Driver, info driver.SnapshotInfo) {
	if _, ok := bl.opts.Snapshots.(snapshot.BuildStore); !ok || !info.Memory || info.Build == "" {
		return
	}
	bl.mu.Lock()
	seen := bl.shared[info.Build]
	bl.mu.Unlock()
	if time.Since(seen) < sharedFor {
		return
	}
	bl.table.spawn(func() {
		if _, ok := driver.As[driver.BuildKeeper](drv); !ok {
			return
		}
		if err := bl.share(bl.table.ctx, drv, info.Build); err != nil {
			if bl.table.ctx.Err() == nil && carrel.KindOf(err) != carrel.Unsupported {
				bl.log.Warn("copy a build to the snapshot store", "build", info.Build, "err", err)
			}
			return
		}
		bl.mu.Lock()
		defer bl.mu.Unlock()
		if bl.shared == nil {
			bl.shared = map[string]time.Time{}
		}
		bl.shared[info.Build] = time.Now()
	})
}

// need is what needs one build.
type need struct {
	snapshots int
	paused    []carrel.ID
	running   []carrel.ID
}

// needs returns what needs each build of a driver. Error: a snapshot's build is not known now, so
// it may be any.
func (bl *builds) needs(ctx context.Context, drv driver.Driver) (map[string]*need, error) {
	out := map[string]*need{}
	of := func(build string) *need {
		if out[build] == nil {
			out[build] = &need{}
		}
		return out[build]
	}
	var errs []error
	byID := map[carrel.SnapshotID]string{}
	for _, sr := range bl.snaps.All() {
		if !sr.Snapshot.Memory || sr.Snapshot.Tier != drv.Info().Tier {
			continue
		}
		build := sr.Build
		if build == "" { // a record from before builds were recorded
			m, err := bl.opts.Snapshots.Get(ctx, sr.Snapshot.ID)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			build = m.Info.Build
		}
		byID[sr.Snapshot.ID] = build
		of(build).snapshots++
	}
	for _, b := range bl.table.snapshot() {
		b.mu.Lock()
		inst, at := b.inst, b.rec.Paused
		b.mu.Unlock()
		if build, ok := byID[at]; ok && inst == nil {
			of(build).paused = append(of(build).paused, b.id)
		}
		if v, ok := driver.As[driver.Versioned](inst); ok && b.public().Tier == drv.Info().Tier {
			build, _ := v.Build()
			of(build).running = append(of(build).running, b.id)
		}
	}
	return out, errors.Join(errs...)
}

// collect drops the kept builds that nothing needs. Sandboxes that could not be adopted, and
// snapshots without a record, may need any.
func (bl *builds) collect(ctx context.Context) error {
	bl.mu.Lock()
	strangers := len(bl.alone)
	bl.mu.Unlock()
	if strangers > 0 || bl.lost.any() || bl.opts.Snapshots == nil {
		return nil
	}
	for _, drv := range bl.opts.Drivers.All() {
		k, all := bl.keeper(ctx, drv)
		if k == nil || len(all) < 2 {
			continue
		}
		needs, err := bl.needs(ctx, drv)
		if err != nil {
			return err
		}
		for _, b := range all {
			if b.Own || b.Used || needs[b.Name] != nil {
				continue
			}
			if err := k.DropBuild(ctx, b.Name); err != nil {
				return err
			}
			bl.log.Info("dropped the kernel of a build that nothing needs any more", "build", b.Name,
				"version", b.Version)
		}
	}
	return nil
}

// leave notes a sandbox that this service can't adopt and leaves alone.
func (bl *builds) leave(id carrel.ID, err error) {
	bl.mu.Lock()
	defer bl.mu.Unlock()
	if bl.alone == nil {
		bl.alone = map[carrel.ID]string{}
	}
	bl.alone[id] = err.Error()
}

// findings lists the snapshots and sandboxes of a driver that need another build.
func (bl *builds) findings(ctx context.Context, drv driver.Driver) []driver.Finding {
	var out []driver.Finding
	if k, all := bl.keeper(ctx, drv); k != nil && bl.opts.Snapshots != nil {
		needs, err := bl.needs(ctx, drv)
		if err != nil {
			out = append(out, driver.Finding{What: "the builds of some snapshots are not known",
				Why: err.Error(), Hint: carrel.HintOf(err)})
		}
		kept := map[string]driver.Build{}
		for _, b := range all {
			kept[b.Name] = b
		}
		for _, name := range slices.Sorted(maps.Keys(needs)) {
			if b, have := kept[name]; !b.Own {
				out = append(out, needs[name].finding(name, b, have))
			}
		}
	}
	bl.mu.Lock()
	defer bl.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(bl.alone)) {
		if rec, err := bl.opts.Store.GetSandbox(ctx, id); err == nil &&
			rec.Sandbox.Tier == drv.Info().Tier {
			out = append(out, driver.Finding{What: fmt.Sprintf("sandbox %s is left alone", id),
				Why:  bl.alone[id],
				Hint: "nothing of it is removed: the build that started it can take it over"})
		}
	}
	return out
}

// finding describes what needs a build.
func (n *need) finding(name string, b driver.Build, have bool) driver.Finding {
	var parts []string
	count := func(n int, one, many string) {
		switch {
		case n == 1:
			parts = append(parts, "1 "+one)
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d %s", n, many))
		}
	}
	count(n.snapshots, "snapshot", "snapshots")
	count(len(n.paused), "paused sandbox"+idsOf(n.paused), "paused sandboxes"+idsOf(n.paused))
	count(len(n.running), "running sandbox"+idsOf(n.running), "running sandboxes"+idsOf(n.running))
	f := driver.Finding{What: strings.Join(parts, ", ") + ": of another build",
		Why: fmt.Sprintf("build %q", name)}
	if b.Version != "" {
		f.Why += " (carrel " + b.Version + ")"
	}
	switch {
	case !have && n.snapshots == 0:
		f.Why += ", whose kernel is not kept yet: a pause keeps it (carrel serve --on-upgrade)"
	case !have:
		f.Why += ", whose kernel is not kept here: their memory can't be restored"
		f.Hint = "start that build on this data directory once, which keeps its kernel; or go on with the files alone (carrel resume --files-only)"
	case b.Problem != "":
		f.Why += ", whose kernel is kept, but " + b.Problem
		f.Hint = "resume them with that build, or go on with the files alone (carrel resume --files-only)"
	default:
		f.Why += ", whose kernel is kept and restores them"
	}
	return f
}

// mostIDs bounds the IDs in a finding.
const mostIDs = 5

// idsOf lists some sandboxes in brackets.
func idsOf(ids []carrel.ID) string {
	var texts []string
	for _, id := range ids[:min(len(ids), mostIDs)] {
		texts = append(texts, string(id))
	}
	if len(ids) > mostIDs {
		texts = append(texts, "…")
	}
	return " (" + strings.Join(texts, ", ") + ")"
}

// CollectBuilds drops the kept builds of drivers that no snapshot and no sandbox needs.
func (s *Service) CollectBuilds(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return s.archive.builds.collect(ctx)
}
