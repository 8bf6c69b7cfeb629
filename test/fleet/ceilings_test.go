package fleet

import (
	"slices"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// ceilings gives a key of a project a ceiling at one front, and tries to get past it at the other: with new
// sandboxes, changes and forks of one, and by another key of the project. Then it looks for the key in the
// usage.
func (f *fleetOf) ceilings(project string, owner *client.Client) {
	t, ctx := f.t, f.t.Context()
	t.Helper()
	ceiling := carrel.Ceiling{Timeout: time.Hour, Limits: carrel.Limits{MemoryMB: 256}, Egress: []string{"example.com"}, Tiers: []carrel.Tier{carrel.Sim}}
	k, err := owner.People().CreateKey(ctx, carrel.NewKey{Name: "bounded", Scope: carrel.ScopeRun, Ceiling: &ceiling})
	if err != nil {
		t.Fatal(err)
	}
	free, err := owner.People().CreateKey(ctx, carrel.NewKey{Name: "free", Scope: carrel.ScopeRun})
	if err != nil {
		t.Fatal(err)
	}
	as := func(secret string) *client.Client {
		t.Helper()
		svc, err := client.New(f.fronts[1].URL(), secret)
		if err != nil {
			t.Fatal(err)
		}
		testenv.EventuallyNil(t, "the key works at the other front", func() error { _, err := svc.List(ctx, carrel.ListOptions{}); return err })
		return svc.(*client.Client)
	}
	bounded, other := as(k.Secret), as(free.Secret)
	refused := func(what string, err error) {
		t.Helper()
		if carrel.KindOf(err) != carrel.Forbidden || carrel.HintOf(err) == "" {
			t.Errorf("%s: %v, want Forbidden and a hint", what, err)
		}
	}
	open := carrel.Network{Policy: &carrel.Policy{Rules: []carrel.Rule{{Allow: []string{"other.example.com"}}}}}
	for what, o := range map[string]carrel.CreateOptions{
		"too long":  {Timeout: 2 * time.Hour},
		"too large": {Limits: carrel.Limits{MemoryMB: 512}},
		"too open":  {Network: open},
	} {
		o.Tier = carrel.Sim
		_, err := bounded.Create(ctx, o)
		refused(what, err)
	}
	sb, err := bounded.Create(ctx, carrel.CreateOptions{Tier: carrel.Sim})
	if err != nil {
		t.Fatal(err)
	}
	if sb.Limits.MemoryMB > 256 || time.Until(sb.Ends) > time.Hour {
		t.Errorf("defaults above the ceiling: %+v", sb)
	}
	for who, c := range map[string]*client.Client{"its key": bounded, "another key": other} {
		_, err = c.SetTimeout(ctx, sb.ID, 2*time.Hour, false)
		refused(who+": a longer time", err)
		_, err = c.SetNetwork(ctx, sb.ID, open)
		refused(who+": a wider network", err)
		_, _, err = c.Resume(ctx, sb.ID, carrel.ResumeOptions{Timeout: 2 * time.Hour})
		refused(who+": a resumption with a longer time", err)
	}
	if list, err := bounded.Fork(ctx, sb.ID, carrel.ForkOptions{Count: 1, Timeout: 2 * time.Hour}); err == nil {
		for _, r := range list {
			refused("a fork with a longer time", r.Err)
		}
	} else {
		refused("a fork with a longer time", err)
	}
	if _, err := other.Create(ctx, carrel.CreateOptions{Tier: carrel.Sim, Timeout: 2 * time.Hour}); err != nil {
		t.Errorf("a key without a ceiling: %v", err)
	}
	report, err := owner.Usage(ctx, carrel.UsageOptions{By: []string{"key"}, Project: project})
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, row := range report.Rows {
		keys = append(keys, row.Group...)
	}
	if !slices.Contains(keys, "bounded") || !slices.Contains(keys, "free") || slices.Contains(keys, "api-key") {
		t.Errorf("the usage is of the keys %q", keys)
	}
}
