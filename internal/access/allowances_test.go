package access

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrel-dev/carrel"
)

// till is a ledger that a test fills, and the service whose sandboxes are held back.
type till struct {
	mu     sync.Mutex
	report func(carrel.UsageOptions) carrel.UsageReport
	events []carrel.Event
	paused []string
	muted  []string
}

func (l *till) Usage(_ context.Context, o carrel.UsageOptions) (carrel.UsageReport, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.report(o), nil
}

func (l *till) QuotaUse(carrel.Holder) map[carrel.LimitName]carrel.Milli {
	return map[carrel.LimitName]carrel.Milli{carrel.LimitSandboxes: 3000}
}

func (l *till) PauseHeld(_ context.Context, project string) int {
	l.paused = append(l.paused, project)
	return 0
}

func (l *till) Remute(project string) { l.muted = append(l.muted, project) }

func (l *till) Tell(e carrel.Event) { l.events = append(l.events, e) }

func (l *till) told() (kinds []string) {
	for _, e := range l.events {
		kinds = append(kinds, e.Type)
	}
	l.events = nil
	return kinds
}

// allowing opens the allowances of a house.
func allowing(h house, l *till) (*Allowances, *Overseer) {
	o := NewOverseer(h.dir, l, l, slog.New(slog.DiscardHandler))
	return NewAllowances(h.People, o, func(carrel.Holder) int { return 1 }, true), o
}

func cost(n carrel.Micro) *carrel.Micro { return &n }

// TestBudgetLife lets a budget warn, be spent, survive the daemon, and begin anew.
func TestBudgetLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		h := open(t, s)
		spent := carrel.Micro(0)
		l := &till{report: func(o carrel.UsageOptions) carrel.UsageReport {
			y, m, d := time.Now().UTC().Date()
			if o.Project != "web" || !o.From.Equal(time.Date(y, m, d, 0, 0, 0, 0, time.UTC)) || fmt.Sprint(o.By) != "[label:task]" {
				t.Errorf("asked %+v", o)
			}
			return carrel.UsageReport{Currency: "EUR", Rows: []carrel.UsageRow{
				{Group: []string{"7"}, UsageTotals: carrel.UsageTotals{Cost: cost(spent)}},
				{Group: []string{"8"}, UsageTotals: carrel.UsageTotals{Cost: cost(99_000_000)}}}}
		}}
		a, o := allowing(h, l)
		must[carrel.Project](t)(h.CreateProject(h.admin, "web"))
		b := carrel.Budget{Project: "web", Name: "task", Label: "task=7", Amount: 2_000_000, Period: carrel.BudgetDay, WarnPct: 50}
		must[carrel.BudgetStatus](t)(a.SetBudget(h.admin, b))
		of := map[string]string{"task": "7"}
		step := func(now carrel.Micro, held bool, want ...string) {
			t.Helper()
			l.mu.Lock()
			spent = now
			l.mu.Unlock()
			if err := o.Look(t.Context()); err != nil {
				t.Fatal(err)
			}
			err := h.dir.Held("create sandbox", "web", "k", of)
			if held != (carrel.KindOf(err) == carrel.Exhausted) {
				t.Errorf("at %v: %v", now, err)
			}
			if held && (carrel.RetryAfterOf(err) <= 0 || carrel.RetryAfterOf(err) > 24*time.Hour || err.Error() !=
				fmt.Sprintf(`create sandbox: budget: the budget "task" of project "web" is spent: %v EUR of %v EUR`, now, b.Amount)) {
				t.Errorf("%v, again after %v", err, carrel.RetryAfterOf(err))
			}
			if got := l.told(); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("at %v it told %v, want %v", now, got, want)
			}
		}
		step(999_999, false)
		step(1_000_000, false, eventBudgetWarning)
		step(1_500_000, false)
		step(2_000_000, true, eventBudgetSpent)
		step(2_000_001, true)
		if len(l.paused) != 2 {
			t.Errorf("it paused %v", l.paused)
		}
		for _, other := range []map[string]string{nil, {"task": "8"}, {"job": "7"}} {
			if err := h.dir.Held("x", "web", "k", other); err != nil {
				t.Errorf("%v is held: %v", other, err)
			}
		}
		if err := h.dir.Held("x", "other", "", of); err != nil {
			t.Error(err)
		}

		h = open(t, s) // the next daemon
		a, o = allowing(h, l)
		step(2_000_001, true)
		if st := must[[]carrel.BudgetStatus](t)(a.Budgets(h.in("web"))); len(st) != 1 || !st[0].Over || st[0].Spent != 2_000_001 {
			t.Errorf("%+v", st)
		}
		if st := must[[]carrel.BudgetStatus](t)(a.Budgets(h.in("other"))); len(st) != 0 {
			t.Errorf("another project sees %+v", st)
		}
		time.Sleep(24 * time.Hour)
		if err := h.dir.Held("x", "web", "", of); err != nil {
			t.Errorf("the next day: %v", err)
		}
		step(0, false)
		step(1_900_000, false, eventBudgetWarning)
		b.Amount = 1_000_000
		must[carrel.BudgetStatus](t)(a.SetBudget(h.admin, b))
		step(1_900_000, true, eventBudgetSpent)
		if err := a.DeleteBudget(h.admin, "web", "task"); err != nil {
			t.Fatal(err)
		}
		if err := h.dir.Held("x", "web", "", of); err != nil {
			t.Errorf("it is gone: %v", err)
		}
	})
}

// TestEgressQuota uses up the traffic of a day, of a project and of a key.
func TestEgressQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, newShelf())
		l := &till{}
		a, o := allowing(h, l)
		must[carrel.Project](t)(h.CreateProject(h.admin, "web"))
		ci := must[carrel.IssuedKey](t)(h.CreateKey(h.in("web"), carrel.NewKey{Name: "ci"}))
		sent := map[string]int64{}
		l.report = func(carrel.UsageOptions) (r carrel.UsageReport) {
			for key, n := range sent {
				r.Rows = append(r.Rows, carrel.UsageRow{Group: []string{"web", key}, UsageTotals: carrel.UsageTotals{BytesOut: n << 20}})
			}
			return r
		}
		hard := func(n carrel.Milli) carrel.Quota {
			return carrel.Quota{Hard: map[carrel.LimitName]carrel.Milli{carrel.LimitEgress: n * 1000}}
		}
		must[carrel.QuotaReport](t)(a.SetQuota(h.admin, carrel.Holder{Project: "web"}, hard(100)))
		must[carrel.QuotaReport](t)(a.SetQuota(h.in("web"), carrel.Holder{Key: "ci"}, hard(10)))
		look := func(project, key bool) {
			t.Helper()
			if err := o.Look(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := h.dir.Muted("web", ""); got != project {
				t.Errorf("muted %v", got)
			}
			if got := h.dir.Muted("web", ci.ID); got != (project || key) {
				t.Errorf("the key is muted: %v", got)
			}
			hit := carrel.LimitOf(h.dir.Held("create sandbox", "web", ci.ID, nil))
			if (hit != nil) != (project || key) || hit != nil && hit.Name != carrel.LimitEgress {
				t.Errorf("%+v", hit)
			}
		}
		sent["ci"], sent["other"] = 9, 50
		look(false, false)
		sent["ci"] = 10
		look(false, true)
		sent["other"] = 90
		look(true, true)
		if len(l.muted) != 2 || fmt.Sprint(l.told()) != "[quota.egress quota.egress]" {
			t.Errorf("%v %v", l.muted, l.events)
		}
		time.Sleep(24 * time.Hour)
		sent = map[string]int64{}
		look(false, false)
		if len(l.muted) != 3 {
			t.Errorf("the wire was not told: %v", l.muted)
		}
	})
}

// TestWhoSets shows who may set what, and that a key which makes keys can't be limited.
func TestWhoSets(t *testing.T) {
	h := open(t, newShelf())
	a, _ := allowing(h, &till{report: func(carrel.UsageOptions) carrel.UsageReport { return carrel.UsageReport{} }})
	for _, p := range []string{"web", "other"} {
		must[carrel.Project](t)(h.CreateProject(h.admin, p))
	}
	ci := must[carrel.IssuedKey](t)(h.CreateKey(h.in("web"), carrel.NewKey{Name: "ci"}))
	must[carrel.IssuedKey](t)(h.CreateKey(h.in("web"), carrel.NewKey{Name: "lead", Scope: carrel.ScopeAdmin}))
	q := carrel.Quota{Hard: map[carrel.LimitName]carrel.Milli{carrel.LimitSandboxes: 1000}}
	member := carrel.WithCaller(h.admin, carrel.Caller{Key: "m", KeyID: ci.ID, Project: "web", Role: carrel.RoleMember})
	for _, c := range []struct {
		ctx  context.Context
		of   carrel.Holder
		want carrel.Kind
	}{
		{h.admin, carrel.Holder{Project: "web"}, ""},
		{h.admin, carrel.Holder{Project: "web", Key: "ci"}, ""},
		{h.admin, carrel.Holder{}, ""}, // the default project
		{h.admin, carrel.Holder{Project: "nowhere"}, carrel.NotFound},
		{h.in("web"), carrel.Holder{Project: "web"}, carrel.Forbidden},
		{h.in("web"), carrel.Holder{Key: "ci"}, ""},
		{h.in("web"), carrel.Holder{Key: ci.ID}, ""},
		{h.in("web"), carrel.Holder{Key: "lead"}, carrel.Invalid},
		{h.in("web"), carrel.Holder{Project: "other"}, carrel.NotFound},
		{h.in("other"), carrel.Holder{Key: ci.ID}, carrel.NotFound},
		{h.in("other"), carrel.Holder{Project: "web", Key: ci.ID}, carrel.NotFound},
		{member, carrel.Holder{Key: "ci"}, carrel.Forbidden},
	} {
		if _, err := a.SetQuota(c.ctx, c.of, q); carrel.KindOf(err) != c.want {
			t.Errorf("%+v by %+v: %v, want %q", c.of, carrel.CallerOf(c.ctx), err, c.want)
		}
		if _, err := a.SetCeiling(c.ctx, c.of, carrel.Ceiling{Tiers: []carrel.Tier{carrel.Sim}}); carrel.KindOf(err) != c.want {
			t.Errorf("ceiling of %+v by %+v: %v, want %q", c.of, carrel.CallerOf(c.ctx), err, c.want)
		}
	}
	if got := must[[]carrel.QuotaReport](t)(a.Quotas(member, true)); len(got) != 2 || got[1].KeyName != "ci" || got[0].Limits[0].Used != 3000 {
		t.Errorf("%+v", got)
	}
	if got := must[[]carrel.QuotaReport](t)(a.Quotas(h.in("other"), false)); len(got) != 0 {
		t.Errorf("another project sees %+v", got)
	}
	if got := h.dir.Quotas("web", ci.ID); len(got) != 2 {
		t.Errorf("%+v bind the key", got)
	}
	if got := h.dir.Ceilings("other", ci.ID); len(got) != 0 {
		t.Errorf("a key of web binds in other: %+v", got)
	}
	must[carrel.QuotaReport](t)(a.SetQuota(h.admin, carrel.Holder{Project: "web"}, carrel.Quota{}))
	if got := h.dir.Quotas("web", ""); len(got) != 0 {
		t.Errorf("it is still there: %+v", got)
	}
	for _, bad := range []carrel.Quota{
		{Hard: map[carrel.LimitName]carrel.Milli{"cakes": 1}},
		{Hard: map[carrel.LimitName]carrel.Milli{carrel.LimitForks: -1}},
		{Hard: map[carrel.LimitName]carrel.Milli{carrel.LimitForks: 1}, Soft: map[carrel.LimitName]carrel.Milli{carrel.LimitForks: 2}},
	} {
		if _, err := a.SetQuota(h.admin, carrel.Holder{}, bad); carrel.KindOf(err) != carrel.Invalid {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	for _, bad := range []carrel.Ceiling{{Egress: []string{"http://x"}}, {Tiers: []carrel.Tier{"x"}}, {Templates: []string{""}},
		{Timeout: -1}, {Limits: carrel.Limits{CPUs: -1}}} {
		if _, err := a.SetCeiling(h.admin, carrel.Holder{}, bad); carrel.KindOf(err) != carrel.Invalid {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	for _, bad := range []carrel.Budget{{Name: "b"}, {Name: "b", Amount: 1, Label: "x"}, {Name: "b", Amount: 1, Period: "week"},
		{Name: "", Amount: 1}, {Name: "b", Amount: 1, Unit: "cakes"}, {Name: "b", Amount: 1, WarnPct: 101}} {
		if _, err := a.SetBudget(h.admin, bad); carrel.KindOf(err) != carrel.Invalid {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// TestMakingTemplates shows that where a ceiling lists templates none is made.
func TestMakingTemplates(t *testing.T) {
	h := open(t, newShelf())
	a, _ := allowing(h, &till{report: func(carrel.UsageOptions) carrel.UsageReport { return carrel.UsageReport{} }})
	must[carrel.Project](t)(h.CreateProject(h.admin, "web"))
	must[carrel.CeilingOf](t)(a.SetCeiling(h.admin, carrel.Holder{Project: "web"}, carrel.Ceiling{Templates: []string{"python"}}))
	s := New(Options{Ceilings: h.dir.Ceilings})
	ctx := h.in("web")
	_, build := s.StartBuild(ctx, carrel.BuildSpec{})
	_, begun := s.NewBuild(ctx, carrel.BuildSpec{})
	_, imported := s.ImportTemplate(ctx, "python", nil, nil)
	_, pulled := s.PullTemplate(ctx, "python", "example.com/x", nil)
	_, image := s.PullImage(ctx, "python", carrel.PullOptions{Image: "example.com/x"}, nil)
	for door, err := range map[string]error{"build": build, "new build": begun, "import": imported, "pull": pulled, "pull image": image} {
		if carrel.KindOf(err) != carrel.Forbidden {
			t.Errorf("%s: %v", door, err)
		}
	}
}

// TestKeyLimitsAtBirth makes keys with a quota and a ceiling. They are in the key's first record, so
// that it never works without them, also for the next daemon.
func TestKeyLimitsAtBirth(t *testing.T) {
	s := newShelf()
	h := open(t, s)
	must[carrel.Project](t)(h.CreateProject(h.admin, "web"))
	five := carrel.Quota{Hard: map[carrel.LimitName]carrel.Milli{carrel.LimitSandboxes: 5000}}
	narrow := carrel.Ceiling{Egress: []string{"*.example.com"}}
	writes := s.writes
	k := must[carrel.IssuedKey](t)(h.CreateKey(h.in("web"),
		carrel.NewKey{Name: "bot", Quota: &five, Ceiling: &narrow}))
	if s.writes != writes+1 {
		t.Errorf("%d writes", s.writes-writes)
	}
	for _, dir := range []*Directory{h.dir, open(t, s).dir} {
		q, c := dir.Quotas("web", k.ID), dir.Ceilings("web", k.ID)
		if len(q) != 1 || q[0].Quota.Hard[carrel.LimitSandboxes] != 5000 || q[0].Key != k.ID {
			t.Errorf("quotas %+v", q)
		}
		if len(c) != 1 || len(c[0].Ceiling.Egress) != 1 {
			t.Errorf("ceilings %+v", c)
		}
	}
	writes = s.writes
	negative := carrel.Quota{Hard: map[carrel.LimitName]carrel.Milli{carrel.LimitSandboxes: -1}}
	for name, c := range map[string]struct {
		key   carrel.NewKey
		field string
	}{
		"an admin's quota":   {carrel.NewKey{Quota: &five, Scope: carrel.ScopeAdmin}, "key"},
		"an admin's ceiling": {carrel.NewKey{Ceiling: &narrow, Scope: carrel.ScopeAdmin}, "key"},
		"a negative limit":   {carrel.NewKey{Quota: &negative}, "hard.sandboxes"},
		"a wrong destination": {carrel.NewKey{Ceiling: &carrel.Ceiling{Egress: []string{"a b"}}},
			"egress"},
	} {
		c.key.Name = "wrong"
		_, err := h.CreateKey(h.in("web"), c.key)
		if ce, ok := errors.AsType[*carrel.Error](err); !ok || ce.Kind != carrel.Invalid ||
			!strings.HasPrefix(ce.Field, c.field) {
			t.Errorf("%s: %v", name, err)
		}
	}
	plain := must[carrel.IssuedKey](t)(h.CreateKey(h.in("web"),
		carrel.NewKey{Name: "plain", Quota: &carrel.Quota{}, Ceiling: &carrel.Ceiling{}}))
	if q := h.dir.Quotas("web", plain.ID); len(q) != 0 || s.writes != writes+1 {
		t.Errorf("empty limits bind: %+v, %d writes", q, s.writes-writes)
	}
}
