package assembly

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/build"
)

// openBuilds opens the engine of builds. It is closed before the service, which it calls.
func (a *Assembly) openBuilds(ctx context.Context) (err error) {
	a.builds, err = build.Open(ctx, build.Options{
		Dir: filepath.Join(a.dir, "builds"), Sandboxes: a.Service, Images: a.images, Tiers: a.buildTiers,
		Network: a.opts.BuildNetwork, Log: a.log,
	})
	if err != nil {
		return err
	}
	a.closing(a.builds.Close)
	return nil
}

// buildTiers lists the tiers of real sandboxes that work here: the default one first, then the
// strongest.
func (a *Assembly) buildTiers(ctx context.Context) (tiers []carrel.Tier) {
	for _, t := range append([]carrel.Tier{a.Tier}, strongest...) {
		d, err := a.drivers.Get(t)
		if t == carrel.Sim || slices.Contains(tiers, t) || err != nil || !d.Info().Capabilities.RealProcesses {
			continue
		}
		if d.Probe(ctx) == nil {
			tiers = append(tiers, t)
		}
	}
	return tiers
}
