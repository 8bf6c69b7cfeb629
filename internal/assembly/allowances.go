package assembly

import (
	"context"
	"sync"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/access"
)

// oversee opens the quotas, ceilings and budgets. It compares usage with them before the first
// request comes, so that what is spent stays spent when the daemon has died.
func (a *Assembly) oversee(ctx context.Context) error {
	usage := carrel.Metering(carrel.NoMetering{})
	if a.ledger != nil {
		usage = a.ledger
	}
	o := access.NewOverseer(a.directory, usage, a.Service, a.log)
	a.Allowances = access.NewAllowances(a.People, o, a.builds.Busy, a.cfg.PriceFile != "")
	if a.ledger == nil {
		return nil // a passing service has one caller, and nothing is measured
	}
	if err := o.Look(ctx); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { o.Run(ctx) })
	a.undo.Add(func() { stop(); wg.Wait() })
	return nil
}
