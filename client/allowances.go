package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/carrel-dev/carrel"
)

// Allowances are the daemon's quotas, ceilings and budgets.
type Allowances struct{ c *Client }

var _ carrel.Allowances = Allowances{}

// Allowances returns the daemon's quotas, ceilings and budgets.
func (c *Client) Allowances() Allowances { return Allowances{c} }

// Quotas implements carrel.Allowances.
func (a Allowances) Quotas(ctx context.Context, own bool) (out []carrel.QuotaReport, err error) {
	path := "/quotas"
	if own {
		path = "/quota"
	}
	err = a.c.call(ctx, "read quotas", http.MethodGet, path, nil, nil, &out)
	return out, err
}

// SetQuota implements carrel.Allowances.
func (a Allowances) SetQuota(ctx context.Context, of carrel.Holder, q carrel.Quota) (out carrel.QuotaReport, err error) {
	err = a.c.call(ctx, "set quota", http.MethodPut, "/quota", nil, struct {
		carrel.Holder
		carrel.Quota
	}{of, q}, &out)
	return out, err
}

// Ceilings implements carrel.Allowances.
func (a Allowances) Ceilings(ctx context.Context) (out []carrel.CeilingOf, err error) {
	err = a.c.call(ctx, "read ceilings", http.MethodGet, "/ceilings", nil, nil, &out)
	return out, err
}

// SetCeiling implements carrel.Allowances.
func (a Allowances) SetCeiling(ctx context.Context, of carrel.Holder, c carrel.Ceiling) (out carrel.CeilingOf, err error) {
	err = a.c.call(ctx, "set ceiling", http.MethodPut, "/ceiling", nil, struct {
		carrel.Holder
		carrel.Ceiling
	}{of, c}, &out)
	return out, err
}

// Budgets implements carrel.Allowances.
func (a Allowances) Budgets(ctx context.Context) (out []carrel.BudgetStatus, err error) {
	err = a.c.call(ctx, "read budgets", http.MethodGet, "/budgets", nil, nil, &out)
	return out, err
}

// SetBudget implements carrel.Allowances.
func (a Allowances) SetBudget(ctx context.Context, b carrel.Budget) (out carrel.BudgetStatus, err error) {
	err = a.c.call(ctx, "set budget", http.MethodPut, "/budgets/"+url.PathEscape(b.Name), nil, map[string]any{
		"project": b.Project, "label": b.Label, "amount": b.Amount, "unit": b.Unit, "period": b.Period, "warnPct": b.WarnPct}, &out)
	return out, err
}

// DeleteBudget implements carrel.Allowances.
func (a Allowances) DeleteBudget(ctx context.Context, project, name string) error {
	return a.c.call(ctx, "delete budget", http.MethodDelete, "/budgets/"+url.PathEscape(name), url.Values{"project": {project}}, nil, nil)
}
