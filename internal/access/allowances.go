package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/ceiling"
	"github.com/carrel-dev/carrel/internal/state"
)

// maxBudgets bounds the budgets of a project.
const maxBudgets = 1000

// Allowances is [carrel.Allowances] as each caller sees it. It is safe for concurrent use.
type Allowances struct {
	people   *People
	overseer *Overseer
	// builds counts the unfinished builds of a holder.
	builds func(carrel.Holder) int
	// priced says that usage costs money.
	priced bool
}

var _ carrel.Allowances = (*Allowances)(nil)

// NewAllowances returns the quotas, ceilings and budgets of a directory. builds counts the unfinished
// builds of a holder, and priced says that usage costs money.
func NewAllowances(p *People, o *Overseer, builds func(carrel.Holder) int, priced bool) *Allowances {
	return &Allowances{p, o, builds, priced}
}

// Quotas implements carrel.Allowances.
func (a *Allowances) Quotas(ctx context.Context, own bool) ([]carrel.QuotaReport, error) {
	c, ctx, err := a.people.service.user(ctx, "read quotas")
	if err != nil {
		return nil, err
	}
	var sent map[carrel.Holder]carrel.Milli
	if sent, err = a.overseer.sent(ctx, time.Now()); carrel.KindOf(err) == carrel.Unsupported {
		err = nil // nothing is metered
	}
	if err != nil {
		return nil, err
	}
	if own {
		out := []carrel.QuotaReport{a.report(carrel.Holder{Project: c.Project}, sent)}
		if c.KeyID != "" {
			out = append(out, a.report(carrel.Holder{Project: c.Project, Key: c.KeyID}, sent))
		}
		return out, nil
	}
	out := []carrel.QuotaReport{}
	for _, h := range a.seen(c, func(al allowed) bool { return al.Quota != nil }) {
		out = append(out, a.report(h, sent))
	}
	return out, nil
}

// seen lists the holders that a caller sees and that have something.
func (a *Allowances) seen(c carrel.Caller, has func(allowed) bool) []carrel.Holder {
	var out []carrel.Holder
	for h, al := range *a.people.dir.allowed.Load() {
		if has(al) && c.Sees(h.Project) {
			out = append(out, h)
		}
	}
	slices.SortFunc(out, func(x, y carrel.Holder) int { return compareStrings(x.Project, y.Project, x.Key, y.Key) })
	return out
}

// compareStrings compares two pairs of texts.
func compareStrings(a, b, c, d string) int {
	return cmp.Or(strings.Compare(a, b), strings.Compare(c, d))
}

// report tells what is used of a quota.
func (a *Allowances) report(h carrel.Holder, sent map[carrel.Holder]carrel.Milli) carrel.QuotaReport {
	var q carrel.Quota
	if al := (*a.people.dir.allowed.Load())[h]; al.Quota != nil {
		q = *al.Quota
	}
	used := a.overseer.host.QuotaUse(h)
	used[carrel.LimitEgress] = sent[h]
	used[carrel.LimitBuilds] = carrel.Milli(a.builds(h)) * 1000
	out := carrel.QuotaReport{Holder: h, KeyName: a.people.dir.keyName(h.Key), Limits: []carrel.QuotaLine{}}
	bound := func(of map[carrel.LimitName]carrel.Milli, name carrel.LimitName) *carrel.Milli {
		n, ok := of[name]
		if !ok {
			return nil
		}
		return &n
	}
	for _, name := range carrel.LimitNames() {
		out.Limits = append(out.Limits, carrel.QuotaLine{Name: name, Hard: bound(q.Hard, name), Soft: bound(q.Soft, name), Used: used[name]})
	}
	return out
}

// keyName is the name of a key; "" for none.
func (d *Directory) keyName(id string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if live := d.keys[id]; live != nil {
		return live.rec.Load().Key.Name
	}
	return ""
}

// change changes what a holder may use and allow. fn changes the allowance and keeps what it points
// to.
func (a *Allowances) change(ctx context.Context, op string, of carrel.Holder,
	fn func(*state.Allowance)) (carrel.Holder, error) {
	p := a.people
	c, err := p.owner(ctx, op)
	if err != nil {
		return of, err
	}
	of.Project = cmp.Or(of.Project, c.Project)
	d := p.dir
	d.mu.Lock()
	defer d.mu.Unlock()
	if of.Key != "" {
		c.Project = of.Project // an administrator may name any
		if own, _, _ := p.service.user(ctx, op); !own.Sees(of.Project) {
			return of, noProject(op, of.Project)
		}
		live, err := p.find(op, c, of.Key)
		if err != nil {
			return of, err
		}
		rec := *live.rec.Load()
		if rec.Key.Project != of.Project {
			return of, noProject(op, of.Project)
		}
		if rec.Key.Scope == carrel.ScopeAdmin {
			return of, adminLimits(op, rec.Key.Name)
		}
		of.Key = rec.Key.ID
		fn(&rec.Allowance)
		return of, d.applyLocked(ctx, state.Change{PutKeys: []state.KeyRecord{rec}})
	}
	rec, err := a.projectLocked(ctx, op, c, of.Project)
	if err != nil {
		return of, err
	}
	fn(&rec.Allowance)
	return of, d.applyLocked(ctx, state.Change{PutProjects: []state.ProjectRecord{rec}})
}

// projectLocked returns the record of a project that only an administrator of the machine changes.
func (a *Allowances) projectLocked(ctx context.Context, op string, c carrel.Caller, name string) (state.ProjectRecord, error) {
	if !c.Sees(name) {
		return state.ProjectRecord{}, noProject(op, name)
	}
	// An administrator that acts for a project counts as its owner.
	if c.Role != carrel.RoleAdmin {
		return state.ProjectRecord{}, &carrel.Error{Op: op, Kind: carrel.Forbidden, Field: "project",
			Err:  errors.New("what a project may use is set by an administrator of the machine"),
			Hint: "use the daemon's own key, and name the project with --of"}
	}
	known, ok := a.people.dir.projectLocked(name)
	if !ok {
		return state.ProjectRecord{}, noProject(op, name)
	}
	rec, recorded := a.people.dir.projects[name]
	if !recorded { // the default one
		known.ID, known.Default = "", false
		rec = state.ProjectRecord{Project: known}
	}
	return rec, nil
}

// SetQuota implements carrel.Allowances.
func (a *Allowances) SetQuota(ctx context.Context, of carrel.Holder, q carrel.Quota) (carrel.QuotaReport, error) {
	if err := carrel.CheckQuota(q); err != nil {
		return carrel.QuotaReport{}, err
	}
	of, err := a.change(ctx, "set quota", of, func(al *state.Allowance) {
		if al.Quota = &q; q.IsZero() {
			al.Quota = nil
		}
	})
	if err == nil {
		err = a.overseer.Look(context.WithoutCancel(ctx))
	}
	if err != nil && carrel.KindOf(err) != carrel.Unsupported {
		return carrel.QuotaReport{}, err
	}
	sent, _ := a.overseer.sent(ctx, time.Now()) // only to show it
	return a.report(of, sent), nil
}

// Ceilings implements carrel.Allowances.
func (a *Allowances) Ceilings(ctx context.Context) ([]carrel.CeilingOf, error) {
	c, _, err := a.people.service.user(ctx, "read ceilings")
	if err != nil {
		return nil, err
	}
	out := []carrel.CeilingOf{}
	for _, h := range a.seen(c, func(al allowed) bool { return al.Ceiling != nil }) {
		out = append(out, a.ceilingOf(h))
	}
	return out, nil
}

func (a *Allowances) ceilingOf(h carrel.Holder) carrel.CeilingOf {
	out := carrel.CeilingOf{Holder: h, KeyName: a.people.dir.keyName(h.Key)}
	if al := (*a.people.dir.allowed.Load())[h]; al.Ceiling != nil {
		out.Ceiling = *al.Ceiling
	}
	return out
}

// SetCeiling implements carrel.Allowances.
func (a *Allowances) SetCeiling(ctx context.Context, of carrel.Holder, c carrel.Ceiling) (carrel.CeilingOf, error) {
	if err := ceiling.Check(c); err != nil {
		return carrel.CeilingOf{}, err
	}
	of, err := a.change(ctx, "set ceiling", of, func(al *state.Allowance) {
		if al.Ceiling = &c; c.IsZero() {
			al.Ceiling = nil
		}
	})
	if err != nil {
		return carrel.CeilingOf{}, err
	}
	return a.ceilingOf(of), nil
}

// Budgets implements carrel.Allowances.
func (a *Allowances) Budgets(ctx context.Context) ([]carrel.BudgetStatus, error) {
	c, ctx, err := a.people.service.user(ctx, "read budgets")
	if err != nil {
		return nil, err
	}
	all, err := a.overseer.statuses(ctx, time.Now())
	if err != nil {
		return nil, err
	}
	out := []carrel.BudgetStatus{}
	for _, b := range all {
		if c.Sees(b.Project) {
			out = append(out, b)
		}
	}
	return out, nil
}

// SetBudget implements carrel.Allowances.
func (a *Allowances) SetBudget(ctx context.Context, b carrel.Budget) (carrel.BudgetStatus, error) {
	const op = "set budget"
	none := carrel.BudgetStatus{}
	b.Period, b.Unit = cmp.Or(b.Period, carrel.BudgetMonth), cmp.Or(b.Unit, carrel.BudgetMoney)
	if err := carrel.CheckBudget(b); err != nil {
		return none, err
	}
	if b.Unit == carrel.BudgetMoney && !a.priced {
		return none, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "unit", Err: errors.New("the daemon has no price list"),
			Hint: "start it with --price-file, or give the budget in seconds"}
	}
	b.Since = time.Now().UTC().Round(0)
	err := a.budgets(ctx, op, &b.Project, func(rec *state.ProjectRecord) error {
		kept := state.BudgetRecord{Budget: b}
		if i := slices.IndexFunc(rec.Budgets, func(o state.BudgetRecord) bool { return o.Budget.Name == b.Name }); i >= 0 {
			kept.Budget.Since = rec.Budgets[i].Budget.Since // a total goes on
			rec.Budgets[i] = kept
			return nil
		}
		if len(rec.Budgets) >= maxBudgets {
			return &carrel.Error{Op: op, Kind: carrel.Exhausted, Field: "budgets",
				Err: fmt.Errorf("the project has %d budgets, and no more may be", maxBudgets), Hint: "remove some: carrel budget rm"}
		}
		rec.Budgets = append(rec.Budgets, kept)
		return nil
	})
	if err != nil {
		return none, err
	}
	all, err := a.overseer.statuses(ctx, time.Now())
	for _, st := range all {
		if st.Project == b.Project && st.Name == b.Name {
			return st, nil
		}
	}
	return none, err
}

// DeleteBudget implements carrel.Allowances.
func (a *Allowances) DeleteBudget(ctx context.Context, project, name string) error {
	const op = "delete budget"
	return a.budgets(ctx, op, &project, func(rec *state.ProjectRecord) error {
		n := len(rec.Budgets)
		rec.Budgets = slices.DeleteFunc(rec.Budgets, func(o state.BudgetRecord) bool { return o.Budget.Name == name })
		if len(rec.Budgets) == n {
			return &carrel.Error{Op: op, Kind: carrel.NotFound, Field: "name",
				Err: fmt.Errorf("project %s has no budget %s", clip(project), clip(name)), Hint: "'carrel budget ls' lists them"}
		}
		return nil
	})
}

// budgets changes the budgets of a project, and looks at once what they hold back.
func (a *Allowances) budgets(ctx context.Context, op string, project *string, fn func(*state.ProjectRecord) error) error {
	c, err := a.people.owner(ctx, op)
	if err != nil {
		return err
	}
	if *project == "" {
		*project = c.Project
	}
	d := a.people.dir
	d.mu.Lock()
	rec, err := a.projectLocked(ctx, op, c, *project)
	if err == nil {
		rec.Budgets = slices.Clone(rec.Budgets)
		err = fn(&rec)
	}
	if err == nil {
		err = d.applyLocked(ctx, state.Change{PutProjects: []state.ProjectRecord{rec}})
	}
	d.mu.Unlock()
	if err != nil {
		return err
	}
	return a.overseer.Look(context.WithoutCancel(ctx))
}

// cutLabel returns the name and the value of a label.
func cutLabel(label string) (name, value string) {
	name, value, _ = strings.Cut(label, "=")
	return name, value
}
