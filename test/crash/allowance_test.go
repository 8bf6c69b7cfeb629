package crash

import (
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// TestAllowances kills a daemon whose project has used up a quota of creations and a quota of living
// sandboxes, and spent a budget. The next daemon knows all of it: its first request is refused as the
// last one was.
func TestAllowances(t *testing.T) {
	t.Parallel() // it mostly waits, as the others do that say so: each has a daemon of its own
	d := daemontest.Start(t)
	as := func(key string) *client.Client {
		svc, err := client.New(d.URL, key)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = svc.Close() })
		return svc.(*client.Client)
	}
	ctx, admin := t.Context(), as(d.Key)
	keys := map[string]string{}
	for _, p := range []string{"many", "spent"} {
		if _, err := admin.People().CreateProject(ctx, p); err != nil {
			t.Fatal(err)
		}
		k, err := admin.People().CreateKey(ctx, carrel.NewKey{Name: "k", Project: p})
		if err != nil {
			t.Fatal(err)
		}
		keys[p] = k.Secret
	}
	create := func(project string, label string) (carrel.Sandbox, error) {
		return as(keys[project]).Create(ctx, carrel.CreateOptions{Template: "base", Timeout: time.Hour, Metadata: map[string]string{"task": label}})
	}
	limit := func(err error) carrel.LimitName {
		if hit := carrel.LimitOf(err); hit != nil {
			return hit.Name
		}
		return ""
	}

	hard := map[carrel.LimitName]carrel.Milli{carrel.LimitSandboxes: 2000, carrel.LimitCreates: 3000}
	if _, err := admin.Allowances().SetQuota(ctx, carrel.Holder{Project: "many"}, carrel.Quota{Hard: hard}); err != nil {
		t.Fatal(err)
	}
	var last carrel.Sandbox
	for range 2 {
		var err error
		if last, err = create("many", "x"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := create("many", "x"); limit(err) != carrel.LimitSandboxes {
		t.Errorf("the third: %v", err)
	}

	b := carrel.Budget{Project: "spent", Name: "task", Label: "task=7", Amount: 1_000_000, Unit: carrel.BudgetSeconds, Period: carrel.BudgetTotal}
	if _, err := admin.Allowances().SetBudget(ctx, b); err != nil {
		t.Fatal(err)
	}
	over, err := create("spent", "7")
	if err != nil {
		t.Fatal(err)
	}
	free, err := create("spent", "8")
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the budget pauses its sandbox", func() bool {
		sb, err := admin.Get(ctx, over.ID)
		return err == nil && sb.State == carrel.Paused
	})

	d.Kill9()
	d.Restart()
	admin = as(d.Key)
	if _, err := create("many", "x"); limit(err) != carrel.LimitSandboxes {
		t.Errorf("the next daemon forgot what lives: %v", err)
	}
	if err := as(keys["many"]).Kill(ctx, last.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := create("many", "x"); err != nil {
		t.Errorf("after a kill there is room: %v", err)
	}
	for _, again := range []func() error{
		func() error { _, err := create("spent", "7"); return err },
		func() error {
			_, _, err := as(keys["spent"]).Resume(ctx, over.ID, carrel.ResumeOptions{})
			return err
		},
	} {
		if err := again(); carrel.KindOf(err) != carrel.Exhausted || !strings.Contains(err.Error(), `the budget "task" of project "spent" is spent`) {
			t.Errorf("the next daemon forgot what is spent: %v", err)
		}
	}
	if sb, err := admin.Get(ctx, free.ID); err != nil || sb.State != carrel.Running {
		t.Errorf("a sandbox with another label is %v, %v", sb.State, err)
	}
	b.Amount = 3_600_000_000
	if _, err := admin.Allowances().SetBudget(ctx, b); err != nil {
		t.Fatal(err)
	}
	if _, _, err := as(keys["spent"]).Resume(ctx, over.ID, carrel.ResumeOptions{}); err != nil {
		t.Errorf("the budget was raised: %v", err)
	}
}
