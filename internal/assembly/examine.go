package assembly

import (
	"context"

	"github.com/carrel-dev/carrel/internal/service"
)

// Examine opens the drivers that a lasting service of these options would have, without its keeper, asks each whether it works on
// this host, and closes them. It writes to Config.DataDir and Config.CacheDir.
func Examine(ctx context.Context, opts Options) ([]service.Check, error) {
	a := from(opts)
	a.keeperless = true
	defer a.undo.Run() // nothing was written that could be lost
	if err := a.openDir(ctx); err != nil {
		return nil, err
	}
	if err := a.openDrivers(ctx); err != nil {
		return nil, err
	}
	a.Tier, _ = a.chooseTier(ctx) // none that works is what the checks say
	return a.Examine(ctx), nil
}

// Examine says of each driver whether it works here, afresh.
func (a *Assembly) Examine(ctx context.Context) []service.Check {
	out := []service.Check{}
	for _, d := range a.drivers.All() {
		out = append(out, service.Examine(ctx, d, a.Tier))
	}
	return append(out, a.missing...)
}
