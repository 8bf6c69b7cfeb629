package access

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/quota"
	"github.com/carrel-dev/carrel/internal/state"
)

const (
	// lookEvery is the pause between two looks at what is spent, and restFor how many times as long
	// as a look it is at least, so that looking never takes more than a fiftieth of a processor.
	lookEvery = 5 * time.Second
	restFor   = 50
	// lookTime bounds one look.
	lookTime = time.Minute
	// warnPct is when a budget warns that says nothing about it.
	warnPct = 80
)

// The events of budgets.
const (
	eventBudgetWarning = "budget.warning"
	eventBudgetSpent   = "budget.spent"
	eventEgressOver    = "quota.egress"
)

// Host is the service whose sandboxes an [Overseer] holds back.
type Host interface {
	// QuotaUse returns what a holder uses of the limits that the service counts.
	QuotaUse(h carrel.Holder) map[carrel.LimitName]carrel.Milli
	// PauseHeld pauses the running sandboxes of a project that a budget holds back.
	PauseHeld(ctx context.Context, project string) (failed int)
	// Remute tells the wire anew what may leave the sandboxes of a project.
	Remute(project string)
	// Tell writes an event.
	Tell(e carrel.Event)
}

// Overseer compares what is used with budgets and with the quotas of traffic. Nothing that it knows
// is counted by itself: each look sums up the ledger, so the death of the daemon changes nothing.
type Overseer struct {
	dir   *Directory
	usage carrel.Metering
	host  Host
	log   *slog.Logger

	mu sync.Mutex // one look at a time
}

// NewOverseer returns an Overseer. It has not looked yet.
func NewOverseer(d *Directory, usage carrel.Metering, host Host, log *slog.Logger) *Overseer {
	return &Overseer{dir: d, usage: usage, host: host, log: log}
}

// Run looks until ctx ends.
func (o *Overseer) Run(ctx context.Context) {
	for wait := lookEvery; ; {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		began := time.Now()
		if err := o.Look(ctx); err != nil && ctx.Err() == nil {
			o.log.Error("compare usage with budgets", "err", err)
		}
		wait = max(lookEvery, restFor*time.Since(began))
	}
}

// Look finds out what holds sandboxes back, and acts on it.
func (o *Overseer) Look(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	now := time.Now()
	next := &held{budgets: map[string][]carrel.BudgetStatus{}, egress: map[carrel.Holder]overEgress{}}
	all, err := o.statuses(ctx, now)
	if err != nil {
		return err
	}
	for _, b := range all {
		if b.Over {
			next.budgets[b.Project] = append(next.budgets[b.Project], b)
		}
	}
	if next.egress, err = o.overEgress(ctx, now); err != nil {
		return err
	}
	before := o.dir.held.Swap(next)
	o.announce(ctx, all, now)
	o.mute(before, next, now)
	for project := range next.budgets {
		o.host.PauseHeld(ctx, project)
	}
	return nil
}

// statuses returns all budgets, with what is spent.
func (o *Overseer) statuses(ctx context.Context, now time.Time) ([]carrel.BudgetStatus, error) {
	type question struct {
		project, label string
		from           time.Time
	}
	asked := map[question]carrel.UsageReport{}
	var out []carrel.BudgetStatus
	for _, rec := range o.dir.budgets() {
		b := rec.Budget
		begins, ends := b.Begins(now)
		name, value := cutLabel(b.Label)
		q := question{b.Project, name, begins}
		report, known := asked[q]
		if !known {
			opts := carrel.UsageOptions{Project: b.Project, From: begins}
			if name != "" {
				opts.By = []string{"label:" + name}
			}
			var err error
			if report, err = o.usage.Usage(ctx, opts); err != nil {
				return nil, fmt.Errorf("budget %q of project %q: %w", b.Name, b.Project, err)
			}
			asked[q] = report
		}
		st := carrel.BudgetStatus{Budget: b, Ends: ends}
		total := report.Total
		if name != "" {
			total = carrel.UsageTotals{}
			for _, row := range report.Rows {
				if row.Group[0] == value {
					total = row.UsageTotals
				}
			}
		}
		if b.Unit == carrel.BudgetSeconds {
			st.Spent = carrel.Micro(total.AliveSeconds) * 1000
		} else if total.Cost != nil {
			st.Spent, st.Currency = *total.Cost, report.Currency
		}
		st.Over = st.Spent >= b.Amount
		st.Warned = warns(b, st.Spent)
		out = append(out, st)
	}
	return out, nil
}

// warns reports whether so much is spent that a budget warns.
func warns(b carrel.Budget, spent carrel.Micro) bool {
	pct := b.WarnPct
	if pct == 0 {
		pct = warnPct
	}
	return spent >= b.Amount-b.Amount*carrel.Micro(100-pct)/100
}

// announce tells what is new: once for each period, also across the daemon's death.
func (o *Overseer) announce(ctx context.Context, all []carrel.BudgetStatus, now time.Time) {
	for _, b := range all {
		begins, _ := b.Begins(now)
		if !b.Warned && !b.Over {
			continue
		}
		rec, ok := o.dir.budget(b.Project, b.Name)
		if !ok {
			continue
		}
		said := rec
		tell := func(kind, text string) {
			o.log.Warn(text, "project", b.Project, "budget", b.Name, "spent", b.Spent, "amount", b.Amount)
			o.host.Tell(carrel.Event{Type: kind, Project: b.Project, Message: fmt.Sprintf("%s: budget %q, %s of %s", text, b.Name,
				b.Budget.Words(b.Spent, b.Currency), b.Budget.Words(b.Amount, b.Currency)),
				Fields: map[string]string{"budget": b.Name, "label": b.Label, "spent": b.Spent.String(), "amount": b.Amount.String(), "unit": string(b.Unit)}})
		}
		if !rec.Warned.Equal(begins) {
			if !b.Over {
				tell(eventBudgetWarning, "a budget is nearly spent")
			}
			rec.Warned = begins
		}
		if b.Over && !rec.Over.Equal(begins) {
			tell(eventBudgetSpent, "a budget is spent, and its sandboxes are paused")
			rec.Over = begins
		}
		if rec != said {
			if err := o.dir.noteBudget(ctx, rec); err != nil {
				o.log.Error("write that a budget has warned", "project", b.Project, "budget", b.Name, "err", err)
			}
		}
	}
}

// overEgress finds the quotas of traffic that are used up.
func (o *Overseer) overEgress(ctx context.Context, now time.Time) (map[carrel.Holder]overEgress, error) {
	out := map[carrel.Holder]overEgress{}
	bounds := o.dir.withLimit(carrel.LimitEgress)
	if len(bounds) == 0 {
		return out, nil
	}
	_, ends := carrel.Budget{Period: carrel.BudgetDay}.Begins(now)
	sent, err := o.sent(ctx, now)
	if err != nil {
		return nil, err
	}
	for _, b := range bounds {
		hit := quota.Over(b, carrel.LimitEgress, sent[b.Holder], 1) // a thousandth: nothing is left
		if hit != nil {
			hit.Asked = 0
			out[b.Holder] = overEgress{*hit, ends}
		}
	}
	return out, nil
}

// sent is what each project and each key has sent today, in MiB.
func (o *Overseer) sent(ctx context.Context, now time.Time) (map[carrel.Holder]carrel.Milli, error) {
	begins, _ := carrel.Budget{Period: carrel.BudgetDay}.Begins(now)
	report, err := o.usage.Usage(ctx, carrel.UsageOptions{By: []string{"project", "key"}, From: begins})
	if err != nil {
		return nil, fmt.Errorf("traffic of the day: %w", err)
	}
	out := map[carrel.Holder]carrel.Milli{}
	for _, row := range report.Rows {
		mib := carrel.Milli(row.BytesOut >> 10 * 1000 / 1024)
		out[carrel.Holder{Project: row.Group[0]}] += mib
		if id := o.dir.keyNamed(row.Group[0], row.Group[1]); id != "" {
			out[carrel.Holder{Project: row.Group[0], Key: id}] += mib
		}
	}
	return out, nil
}

// mute closes and opens the networks of projects whose traffic is used up, or is no more.
func (o *Overseer) mute(before, next *held, now time.Time) {
	changed := map[string]bool{}
	for h, over := range next.egress {
		if _, was := before.egress[h]; !was {
			changed[h.Project] = true
			o.log.Warn("a quota of traffic is used up", "project", h.Project, "of", over.hit.Of, "limit", over.hit.Limit)
			o.host.Tell(carrel.Event{Type: eventEgressOver, Project: h.Project,
				Message: "nothing leaves the sandboxes until " + over.ends.Format(time.RFC3339) + ": " + quota.Say(over.hit),
				Fields:  map[string]string{"limit": string(carrel.LimitEgress), "of": over.hit.Of}})
		}
	}
	for h := range before.egress {
		if _, is := next.egress[h]; !is {
			changed[h.Project] = true
		}
	}
	for project := range changed {
		o.host.Remute(project)
	}
}

// budgets returns all budgets.
func (d *Directory) budgets() []state.BudgetRecord {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []state.BudgetRecord
	for name, p := range d.projects {
		for _, b := range p.Budgets {
			b.Budget.Project = name
			out = append(out, b)
		}
	}
	slices.SortFunc(out, func(a, b state.BudgetRecord) int {
		return compareStrings(a.Budget.Project, b.Budget.Project, a.Budget.Name, b.Budget.Name)
	})
	return out
}

// budget returns one budget.
func (d *Directory) budget(project, name string) (state.BudgetRecord, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.projects[project].Budgets {
		if b.Budget.Name == name {
			b.Budget.Project = project
			return b, true
		}
	}
	return state.BudgetRecord{}, false
}

// noteBudget writes what a budget has said, if it is still there and the same.
func (d *Directory) noteBudget(ctx context.Context, rec state.BudgetRecord) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	p, ok := d.projects[rec.Budget.Project]
	if !ok {
		return nil
	}
	p.Budgets = slices.Clone(p.Budgets)
	for i, b := range p.Budgets {
		b.Budget.Project = rec.Budget.Project
		if b.Budget == rec.Budget {
			p.Budgets[i] = rec
			return d.applyLocked(ctx, state.Change{PutProjects: []state.ProjectRecord{p}})
		}
	}
	return nil
}

// withLimit returns the quotas that have a limit.
func (d *Directory) withLimit(name carrel.LimitName) []quota.Bound {
	var out []quota.Bound
	for h, a := range *d.allowed.Load() {
		if a.Quota == nil {
			continue
		}
		if _, ok := a.Quota.Hard[name]; ok {
			out = append(out, quota.Bound{Holder: h, Of: a.of, Quota: *a.Quota})
		}
	}
	return out
}

// keyNamed returns the ID of the working key of a project with a name; "" for none.
func (d *Directory) keyNamed(project, name string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if live := d.namedLocked(project, name, time.Now()); live != nil {
		return live.rec.Load().Key.ID
	}
	return ""
}
