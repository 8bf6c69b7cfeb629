package access

import (
	"fmt"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/ceiling"
	"github.com/carrel-dev/carrel/internal/quota"
	"github.com/carrel-dev/carrel/internal/state"
)

// allowed is what one holder may use and allow.
type allowed struct {
	of string // whose it is, for people
	state.Allowance
}

// held is what keeps sandboxes from running at this moment. An [Overseer] finds it out.
type held struct {
	budgets map[string][]carrel.BudgetStatus // by project, those that are spent
	egress  map[carrel.Holder]overEgress
}

// overEgress is a quota of traffic that is used up until a time.
type overEgress struct {
	hit  carrel.LimitHit
	ends time.Time
}

// allowLocked makes the view of what is allowed anew. Requests read it without a lock.
func (d *Directory) allowLocked() {
	view := map[carrel.Holder]allowed{}
	for name, p := range d.projects {
		if p.Allowance != (state.Allowance{}) {
			view[carrel.Holder{Project: name}] = allowed{fmt.Sprintf("project %q", name), p.Allowance}
		}
	}
	for id, live := range d.keys {
		if rec := live.rec.Load(); rec.Allowance != (state.Allowance{}) {
			view[carrel.Holder{Project: rec.Key.Project, Key: id}] =
				allowed{fmt.Sprintf("API key %q", rec.Key.Name), rec.Allowance}
		}
	}
	d.allowed.Store(&view)
}

// binding returns what binds a key, the project's first.
func (d *Directory) binding(project, key string) []heldBy {
	view := *d.allowed.Load()
	if len(view) == 0 {
		return nil
	}
	var out []heldBy
	holders := [...]carrel.Holder{{Project: project}, {Project: project, Key: key}}
	for _, h := range holders[:1+min(len(key), 1)] {
		if a, ok := view[h]; ok {
			out = append(out, heldBy{h, a})
		}
	}
	return out
}

type heldBy struct {
	carrel.Holder
	allowed
}

// Quotas returns the quotas that bind a key of a project, the project's first.
func (d *Directory) Quotas(project, key string) []quota.Bound {
	var out []quota.Bound
	for _, b := range d.binding(project, key) {
		if b.Quota != nil {
			out = append(out, quota.Bound{Holder: b.Holder, Of: b.of, Quota: *b.Quota})
		}
	}
	return out
}

// Ceilings returns the ceilings that bind a key of a project, the project's first.
func (d *Directory) Ceilings(project, key string) []ceiling.Bound {
	var out []ceiling.Bound
	for _, b := range d.binding(project, key) {
		if b.Ceiling != nil {
			out = append(out, ceiling.Bound{Of: b.of, Ceiling: *b.Ceiling})
		}
	}
	return out
}

// Held says which budget, or which day's traffic, keeps a sandbox from running now. Error: Exhausted.
func (d *Directory) Held(op, project, key string, metadata map[string]string) error {
	h, now := d.held.Load(), time.Now()
	for _, b := range h.budgets[project] {
		if (b.Ends.IsZero() || now.Before(b.Ends)) && b.Covers(metadata) {
			return spentError(op, b, now)
		}
	}
	for _, of := range []carrel.Holder{{Project: project}, {Project: project, Key: key}} {
		if over, ok := h.egress[of]; ok && now.Before(over.ends) {
			return quota.Error(op, over.hit, over.ends.Sub(now))
		}
	}
	return nil
}

// spentError is the error for a sandbox whose budget is spent.
func spentError(op string, b carrel.BudgetStatus, now time.Time) error {
	e := &carrel.Error{Op: op, Kind: carrel.Exhausted, Field: "budget",
		Err: fmt.Errorf("the budget %q of project %q is spent: %s of %s", b.Name, b.Project, b.Budget.Words(b.Spent, b.Currency),
			b.Budget.Words(b.Amount, b.Currency)),
		Hint: "an administrator can raise it: carrel budget set"}
	if !b.Ends.IsZero() {
		e.RetryAfter = b.Ends.Sub(now)
		e.Hint = "it begins anew at " + b.Ends.Format(time.RFC3339) + ", or " + e.Hint
	}
	return e
}

// Muted reports whether the traffic of a day is used up.
func (d *Directory) Muted(project, key string) bool {
	h := d.held.Load()
	if len(h.egress) == 0 {
		return false
	}
	now := time.Now()
	for _, of := range []carrel.Holder{{Project: project}, {Project: project, Key: key}} {
		if over, ok := h.egress[of]; ok && now.Before(over.ends) {
			return true
		}
	}
	return false
}
