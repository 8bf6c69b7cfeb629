package assembly

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/build"
	"github.com/carrel-dev/carrel/internal/build/dockerfile"
	"github.com/carrel-dev/carrel/internal/build/plan"
)

// openBuilds opens the engine of builds. It is closed before the service, which it calls.
func (a *Assembly) openBuilds(ctx context.Context) (err error) {
	a.builds, err = build.Open(ctx, build.Options{
		Dir: filepath.Join(a.dir, "builds"), Sandboxes: a.Service, Images: a.images, Tiers: a.buildTiers,
		Planner: planDockerfile,
		Network: a.opts.BuildNetwork, Quotas: a.directory.Quotas, Log: a.log,
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
		if t == carrel.Sim || slices.Contains(tiers, t) || err != nil ||
			!d.Info().Capabilities.RealProcesses {
			continue
		}
		if d.Probe(ctx) == nil {
			tiers = append(tiers, t)
		}
	}
	return tiers
}

// planDockerfile makes the plan of a Dockerfile for the engine of builds.
func planDockerfile(ctx context.Context, req build.PlanRequest) (plan.Plan, error) {
	f, err := dockerfile.Parse(req.Dockerfile)
	if err != nil {
		return plan.Plan{}, err
	}
	return f.Plan(ctx, dockerfile.Options{Args: req.Args, Target: req.Target,
		Warn: func(w dockerfile.Warning) { req.Warn(w.String()) }}, req.Resolve)
}
