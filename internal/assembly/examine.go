package assembly

import (
	"context"

	"github.com/carrel-dev/carrel/internal/service"
)

// Examine opens the drivers of a lasting service with these options, without its keeper. It checks
// whether each works on this host, and closes them. It writes to Config.DataDir and
// Config.CacheDir.
func Examine(ctx context.Context, opts Options) ([]service.Check, error) {
	a := from(opts)
	a.keeperless = true
	defer a.undo.Run() // there is no written data that an error could lose
	if err := a.openDir(ctx); err != nil {
		return nil, err
	}
	if err := a.openDrivers(ctx); err != nil {
		return nil, err
	}
	a.Tier, _ = a.chooseTier(ctx) // the checks report it if no tier works
	return append(a.Examine(ctx), a.baseCheck()), nil
}

// Examine checks anew for each driver whether it works here. A service that runs also says what
// needs another build, and what its template base is.
func (a *Assembly) Examine(ctx context.Context) []service.Check {
	if a.Service != nil {
		if out, err := a.Service.Doctor(ctx); err == nil {
			return append(append(a.tellKernel(out), a.missing...), a.baseCheck())
		}
	}
	out := []service.Check{}
	for _, d := range a.drivers.All() {
		out = append(out, service.Examine(ctx, d, a.Tier))
	}
	return append(a.tellKernel(out), a.missing...)
}
