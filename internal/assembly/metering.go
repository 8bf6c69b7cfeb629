package assembly

import (
	"context"
	"sync"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/ledger"
	"github.com/carrel-dev/carrel/internal/service"
)

// openLedger puts the ledger of usage before the store of records. A passing service has none: what
// it measures would end with it.
func (a *Assembly) openLedger(ctx context.Context) (err error) {
	if a.passing() {
		return nil
	}
	var prices *ledger.Prices
	if a.cfg.PriceFile != "" {
		if prices, err = ledger.LoadPrices(a.cfg.PriceFile); err != nil {
			return err
		}
	}
	a.ledger, err = ledger.Open(ctx, ledger.Options{Store: a.state, Prices: prices, Log: a.log})
	if err == nil {
		a.state = a.ledger.Store()
	}
	return err
}

// runLedger keeps the ledger until the assembly closes. The service has adopted its sandboxes. The
// ledger saves its last figures before the service ends sandboxes or closes.
func (a *Assembly) runLedger() {
	if a.ledger == nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { a.ledger.Run(ctx) })
	a.undo.Add(func() { stop(); wg.Wait() })
}

// meter is the ledger for the service; nil without one.
func (a *Assembly) meter() service.Meter {
	if a.ledger == nil {
		return nil
	}
	return a.ledger
}

// usage is the ledger for callers; nil without one.
func (a *Assembly) usage() carrel.Metering {
	if a.ledger == nil {
		return nil
	}
	return a.ledger
}
