package front

import (
	"context"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/access"
)

// allowancesOf are the quotas of a fleet. They are in the fleet's database, as projects and keys are.
// So are ceilings, which the nodes are told with each call. Budgets are each node's own.
type allowancesOf struct {
	*access.Allowances
	none carrel.NoAllowances
}

var _ carrel.Allowances = allowancesOf{}

// SetQuota implements carrel.Allowances. Only limits are good that are counted over all nodes.
func (a allowancesOf) SetQuota(ctx context.Context, of carrel.Holder, q carrel.Quota) (carrel.QuotaReport, error) {
	if err := countable("set quota", &q); err != nil {
		return carrel.QuotaReport{}, err
	}
	return a.Allowances.SetQuota(ctx, of, q)
}

// Budgets implements carrel.Allowances.
func (a allowancesOf) Budgets(ctx context.Context) ([]carrel.BudgetStatus, error) {
	return a.none.Budgets(ctx)
}

// SetBudget implements carrel.Allowances.
func (a allowancesOf) SetBudget(ctx context.Context, b carrel.Budget) (carrel.BudgetStatus, error) {
	return a.none.SetBudget(ctx, b)
}

// DeleteBudget implements carrel.Allowances.
func (a allowancesOf) DeleteBudget(ctx context.Context, project, name string) error {
	return a.none.DeleteBudget(ctx, project, name)
}

// countedPeople are the projects and keys of a fleet.
type countedPeople struct{ *access.People }

// CreateKey implements carrel.People. Only limits are good that are counted over all nodes.
func (p countedPeople) CreateKey(ctx context.Context, n carrel.NewKey) (carrel.IssuedKey, error) {
	if err := countable("create key", n.Quota); err != nil {
		return carrel.IssuedKey{}, err
	}
	return p.People.CreateKey(ctx, n)
}

// host is the fleet as an [access.Overseer] sees it.
type host struct{ *core }

var _ access.Host = host{}

// useTime bounds the question what a holder uses.
const useTime = 3 * time.Second

// QuotaUse implements access.Host.
func (h host) QuotaUse(of carrel.Holder) map[carrel.LimitName]carrel.Milli {
	ctx, cancel := context.WithTimeout(context.Background(), useTime)
	defer cancel()
	used, err := h.homes.registry.Used(ctx, of)
	if err != nil {
		h.homes.log.Warn("read what a quota's holder uses", "project", of.Project, "err", err)
		return map[carrel.LimitName]carrel.Milli{}
	}
	return used
}

// PauseHeld implements access.Host. A fleet has no budgets.
func (h host) PauseHeld(context.Context, string) int { return 0 }

// Remute implements access.Host. A fleet has no quotas of traffic.
func (h host) Remute(string) {}

// Tell implements access.Host.
func (h host) Tell(e carrel.Event) {
	ctx, cancel := context.WithTimeout(context.Background(), useTime)
	defer cancel()
	if _, err := h.events.AppendEvent(ctx, e); err != nil {
		h.homes.log.Warn("write an event", "err", err)
	}
}
