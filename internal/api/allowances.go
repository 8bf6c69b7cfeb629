package api

import (
	"net/http"
	"slices"
	"time"

	"github.com/carrel-dev/carrel"
)

// allowanceRoutes are our routes about quotas, ceilings and budgets.
type allowanceRoutes struct{ *Server }

func (s allowanceRoutes) add() {
	const v1 = " /carrel/v1"
	s.handle("GET"+v1+"/quota", s.ownQuota)
	s.handle("PUT"+v1+"/quota", s.setQuota)
	s.handle("GET"+v1+"/quotas", s.quotas)
	s.handle("GET"+v1+"/ceilings", s.ceilings)
	s.handle("PUT"+v1+"/ceiling", s.setCeiling)
	s.handle("GET"+v1+"/budgets", s.budgets)
	s.handle("PUT"+v1+"/budgets/{name}", s.setBudget)
	s.handle("DELETE"+v1+"/budgets/{name}", s.deleteBudget)
}

// answer answers with a value, or returns the error of making it.
func answer[T any](w http.ResponseWriter, v T, err error) error {
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, v)
	return nil
}

func (s allowanceRoutes) ownQuota(w http.ResponseWriter, r *http.Request) error {
	all, err := s.opts.Allowances.Quotas(r.Context(), true)
	return answer(w, all, err)
}

func (s allowanceRoutes) quotas(w http.ResponseWriter, r *http.Request) error {
	all, err := s.opts.Allowances.Quotas(r.Context(), false)
	return answer(w, all, err)
}

// limitsIn are the limits of a quota. Null is no limit.
type limitsIn struct {
	Hard map[carrel.LimitName]*carrel.Milli `json:"hard"`
	Soft map[carrel.LimitName]*carrel.Milli `json:"soft"`
}

// quota returns the limits that are given.
func (b limitsIn) quota() carrel.Quota {
	given := func(limits map[carrel.LimitName]*carrel.Milli) map[carrel.LimitName]carrel.Milli {
		var out map[carrel.LimitName]carrel.Milli
		for name, n := range limits {
			if n == nil {
				continue
			}
			if out == nil {
				out = map[carrel.LimitName]carrel.Milli{}
			}
			out[name] = *n
		}
		return out
	}
	return carrel.Quota{Hard: given(b.Hard), Soft: given(b.Soft)}
}

// quotaIn replaces a quota.
type quotaIn struct {
	Project string `json:"project"`
	Key     string `json:"key"`
	limitsIn
}

func (s allowanceRoutes) setQuota(w http.ResponseWriter, r *http.Request) error {
	var body quotaIn
	if err := decodeStrict(w, r, &body, false); err != nil {
		return err
	}
	q, err := s.opts.Allowances.SetQuota(r.Context(),
		carrel.Holder{Project: body.Project, Key: body.Key}, body.quota())
	return answer(w, q, err)
}

func (s allowanceRoutes) ceilings(w http.ResponseWriter, r *http.Request) error {
	all, err := s.opts.Allowances.Ceilings(r.Context())
	return answer(w, all, err)
}

// boundsIn are the bounds of a ceiling.
type boundsIn struct {
	Egress    []string      `json:"egress"`
	Tiers     []carrel.Tier `json:"tiers"`
	Templates []string      `json:"templates"`
	Limits    carrel.Limits `json:"limits"`
	Timeout   span          `json:"timeout"`
	Secrets   []string      `json:"secrets"`
}

// ceilingIn replaces a ceiling.
type ceilingIn struct {
	Project string `json:"project"`
	Key     string `json:"key"`
	boundsIn
}

// maxCeilingList bounds the lists of a ceiling, each of whose entries is compared at each creation.
const maxCeilingList = 1000

// ceiling returns the bounds that are given. Error: Invalid.
func (b boundsIn) ceiling() (carrel.Ceiling, error) {
	for field, n := range map[string]int{"egress": len(b.Egress), "templates": len(b.Templates),
		"tiers": len(b.Tiers), "secrets": len(b.Secrets)} {
		if n > maxCeilingList {
			return carrel.Ceiling{}, invalid(field, "%d entries, at most %d may be", n, maxCeilingList)
		}
	}
	c := carrel.Ceiling{Egress: b.Egress, Tiers: b.Tiers, Templates: b.Templates,
		Limits: b.Limits, Secrets: b.Secrets}
	if b.Timeout != nil {
		var err error
		if c.Timeout, err = b.Timeout.duration("timeout", 0); err != nil {
			return carrel.Ceiling{}, err
		}
	}
	return c, nil
}

func (s allowanceRoutes) setCeiling(w http.ResponseWriter, r *http.Request) error {
	var body ceilingIn
	if err := decodeStrict(w, r, &body, false); err != nil {
		return err
	}
	c, err := body.ceiling()
	if err != nil {
		return err
	}
	set, err := s.opts.Allowances.SetCeiling(r.Context(), carrel.Holder{Project: body.Project, Key: body.Key}, c)
	return answer(w, set, err)
}

func (s allowanceRoutes) budgets(w http.ResponseWriter, r *http.Request) error {
	all, err := s.opts.Allowances.Budgets(r.Context())
	return answer(w, all, err)
}

// budgetIn makes or replaces a budget.
type budgetIn struct {
	Project string              `json:"project"`
	Label   string              `json:"label"`
	Amount  carrel.Micro        `json:"amount"`
	Unit    carrel.BudgetUnit   `json:"unit"`
	Period  carrel.BudgetPeriod `json:"period"`
	WarnPct int                 `json:"warnPct"`
}

func (s allowanceRoutes) setBudget(w http.ResponseWriter, r *http.Request) error {
	var body budgetIn
	if err := decodeStrict(w, r, &body, false); err != nil {
		return err
	}
	b, err := s.opts.Allowances.SetBudget(r.Context(), carrel.Budget{Project: body.Project, Name: r.PathValue("name"), Label: body.Label,
		Amount: body.Amount, Unit: body.Unit, Period: body.Period, WarnPct: body.WarnPct, Since: time.Time{}})
	return answer(w, b, err)
}

func (s allowanceRoutes) deleteBudget(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	for name := range q {
		if !slices.Contains([]string{"project"}, name) {
			return invalid(clip(name), "there is no such parameter")
		}
	}
	if err := s.opts.Allowances.DeleteBudget(r.Context(), q.Get("project"), r.PathValue("name")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
