package fleet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// limit sets the hard limits of a project at the first front.
func (f *fleetOf) limit(project string, hard map[carrel.LimitName]carrel.Milli) {
	f.t.Helper()
	_, err := f.Allowances().SetQuota(f.t.Context(), carrel.Holder{Project: project}, carrel.Quota{Hard: hard})
	if err != nil {
		f.t.Fatal(err)
	}
}

// in is a client of a front for a project.
func (f *fleetOf) in(i int, project string) *client.Client {
	f.t.Helper()
	key, _ := f.fronts[i].Key()
	svc, err := client.New(f.fronts[i].URL(), key, client.WithProject(project))
	if err != nil {
		f.t.Fatal(err)
	}
	return svc.(*client.Client)
}

// usedOf is what a project uses of a limit, as a front says.
func usedOf(ctx context.Context, c *client.Client, project string, name carrel.LimitName) (carrel.Milli, error) {
	list, err := c.Allowances().Quotas(ctx, false)
	if err != nil {
		return 0, err
	}
	for _, q := range list {
		i := slices.IndexFunc(q.Limits, func(l carrel.QuotaLine) bool { return l.Name == name })
		if q.Project == project && i >= 0 {
			return q.Limits[i].Used, nil
		}
	}
	return 0, fmt.Errorf("no quota of %s in %+v", project, list)
}

// known waits until a front knows the quota of a project.
func (f *fleetOf) known(i int, project string) {
	f.t.Helper()
	testenv.EventuallyNil(f.t, "the front knows the quota", func() error {
		_, err := usedOf(f.t.Context(), f.at(i), project, carrel.LimitSandboxes)
		return err
	})
}

// TestQuota has two fronts race for a project's last sandboxes, on three nodes. Then sandboxes are
// paused, resumed by a request, moved and killed, a node dies, and creations are repeated and fail.
func TestQuota(t *testing.T) {
	t.Parallel()
	f := start(t, 3)
	ctx := t.Context()
	f.addFront()
	const limit = 5
	f.limit("default", map[carrel.LimitName]carrel.Milli{carrel.LimitSandboxes: limit * 1000, carrel.LimitVCPUs: 100_000})
	f.known(1, "default")
	fronts := []*client.Client{f.Client, f.at(1)}
	opts := carrel.CreateOptions{Tier: carrel.Sim, Timeout: time.Hour}

	var mu sync.Mutex
	var made []carrel.Sandbox
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			o := opts
			o.IdempotencyKey = fmt.Sprint("race-", i)
			sb, err := fronts[i%2].Create(ctx, o)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				made = append(made, sb)
				return
			}
			if hit := carrel.LimitOf(err); carrel.KindOf(err) != carrel.Exhausted || hit == nil || hit.Name != carrel.LimitSandboxes || carrel.HintOf(err) == "" {
				t.Errorf("creation %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if len(made) != limit {
		t.Fatalf("%d sandboxes were made, of %d", len(made), limit)
	}
	for i := range fronts {
		if n, err := usedOf(ctx, fronts[i], "default", carrel.LimitSandboxes); err != nil || n != limit*1000 {
			t.Errorf("front %d says %v %v are used", i, n, err)
		}
	}
	// A fork, a bad creation, and one of another project.
	if _, err := f.Fork(ctx, made[0].ID, carrel.ForkOptions{}); carrel.KindOf(err) != carrel.Exhausted {
		t.Errorf("a fork: %v", err)
	}
	if _, err := f.People().CreateProject(ctx, "other"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.in(0, "other").Create(ctx, opts); err != nil {
		t.Errorf("another project: %v", err)
	}

	// A pause gives its part back. A request that would wake the sandbox does not, while there is none.
	if _, err := f.Pause(ctx, made[0].ID, carrel.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	sixth, err := fronts[1].Create(ctx, opts)
	if err != nil {
		t.Fatal("after a pause:", err)
	}
	if _, _, err := f.Resume(ctx, made[0].ID, carrel.ResumeOptions{}); carrel.KindOf(err) != carrel.Exhausted || carrel.LimitOf(err) == nil {
		t.Errorf("resume beyond the limit: %v", err)
	}
	bad := opts
	bad.Template = "missing"
	for range 3 {
		if _, err := f.Create(ctx, bad); err == nil {
			t.Error("a creation of a template that is missing")
		}
	}
	if err := fronts[1].Kill(ctx, sixth.ID); err != nil {
		t.Fatal(err)
	}
	testenv.EventuallyNil(t, "it resumes when there is room", func() error {
		_, _, err := f.Resume(ctx, made[0].ID, carrel.ResumeOptions{})
		return err
	})
	for range 3 { // failures leave nothing
		if _, err := f.Create(ctx, bad); err == nil {
			t.Error("a creation of a template that is missing")
		}
	}
	if n, err := usedOf(ctx, f.Client, "default", carrel.LimitSandboxes); err != nil || n != limit*1000 {
		t.Errorf("%v %v are used", n, err)
	}

	// A full project is moved, and loses nothing.
	name := fmt.Sprintf("node-%d", f.home(made[0].ID))
	got, err := f.Nodes().DrainNode(ctx, name)
	if err != nil || len(got.Failed) > 0 {
		t.Fatalf("%+v %v", got, err)
	}
	for _, sb := range made {
		f.sh(f.Client, sb.ID, "true")
	}

	// The node of one dies.
	at := f.home(made[1].ID)
	on := 0
	for _, sb := range made {
		if f.home(sb.ID) == at {
			on++
		}
	}
	var before carrel.Milli
	if !testing.Short() { // it waits for the next copy
		before = f.metered(at)
	}
	f.nodes[at].Kill9()
	testenv.EventuallyNil(t, "what was lost does not count", func() error {
		n, err := usedOf(ctx, fronts[1], "default", carrel.LimitSandboxes)
		if want := carrel.Milli(limit-on) * 1000; err != nil || n != want {
			return fmt.Errorf("%v %v, want %v", n, err, want)
		}
		return nil
	})
	if testing.Short() {
		return
	}
	// What it used is known up to the last copy.
	report, err := fronts[1].Usage(ctx, carrel.UsageOptions{By: []string{"project", "day"}})
	if err != nil || len(report.Behind) != 1 || report.Behind[0].Node != fmt.Sprintf("node-%d", at) || report.Total.AliveSeconds < before {
		t.Errorf("usage after a node died: %+v %v, want more than %v", report, err, before)
	}
	for _, row := range report.Rows {
		if len(row.Group) != 2 || row.Group[0] == "" && row.AliveSeconds > 0 || row.Group[1] == "" {
			t.Errorf("%+v", row)
		}
	}
}

// metered waits until the usage of a node is copied into the database, and returns how long the
// sandboxes of the whole fleet ran by then.
func (f *fleetOf) metered(node int) carrel.Milli {
	f.t.Helper()
	testenv.EventuallyNil(f.t, "the node's usage is copied", func() error {
		out := f.server.Exec(f.t, f.database(), fmt.Sprintf("SELECT count(*) FROM carrel.usage_copies WHERE node = 'node-%d'::bytea AND (report->'total'->>'aliveSeconds')::numeric > 0", node))
		if strings.TrimSpace(out) == "0" {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	// The copy may be older than the answer of the node now. What others used is in both.
	var sum carrel.Milli
	for i, d := range f.nodes {
		svc, err := client.New(d.URL, d.Key)
		if err != nil {
			f.t.Fatal(err)
		}
		got, err := svc.(*client.Client).Usage(f.t.Context(), carrel.UsageOptions{})
		if err != nil {
			f.t.Fatal(err)
		}
		if i != node {
			sum += got.Total.AliveSeconds
		}
	}
	all, err := f.Usage(f.t.Context(), carrel.UsageOptions{})
	if err != nil || all.Total.AliveSeconds <= sum || len(all.Behind) > 0 {
		f.t.Errorf("the fleet's usage: %+v %v, want more than %v", all, err, sum)
	}
	return sum + 1
}

// TestQuotaRepeats sends a creation again that took the last part of a quota, and asks for forks and
// sizes that have no room.
func TestQuotaRepeats(t *testing.T) {
	t.Parallel()
	f := start(t, 2)
	ctx := t.Context()
	f.limit("default", map[carrel.LimitName]carrel.Milli{carrel.LimitMemory: 1000 * 1000, carrel.LimitForks: 3000})
	opts := carrel.CreateOptions{Tier: carrel.Sim, Timeout: time.Hour, Limits: carrel.Limits{MemoryMB: 1000}, IdempotencyKey: "again"}
	ids := make([]carrel.ID, 4)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			sb, err := f.Create(ctx, opts)
			if ids[i] = sb.ID; err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := slices.Compact(ids); len(got) != 1 {
		t.Errorf("one creation made %v", ids)
	}
	opts.IdempotencyKey = "other"
	if _, err := f.Create(ctx, opts); carrel.KindOf(err) != carrel.Exhausted {
		t.Errorf("another creation: %v", err)
	}
	if _, err := f.Fork(ctx, ids[0], carrel.ForkOptions{Count: 4}); carrel.LimitOf(err) == nil || carrel.LimitOf(err).Name != carrel.LimitForks {
		t.Errorf("more forks than one call may make: %v", err)
	}
	if err := f.Kill(ctx, ids[0]); err != nil {
		t.Fatal(err)
	}
	small := carrel.CreateOptions{Tier: carrel.Sim, Timeout: time.Hour, Limits: carrel.Limits{MemoryMB: 300}}
	sb, err := f.Create(ctx, small)
	if err != nil {
		t.Fatal(err)
	}
	forks, err := f.Fork(ctx, sb.ID, carrel.ForkOptions{Count: 2})
	for _, r := range forks {
		if r.Err != nil {
			t.Error(r.Err)
		}
	}
	if err != nil || len(forks) != 2 {
		t.Fatalf("%+v %v", forks, err)
	}
	if _, err := f.Create(ctx, small); carrel.KindOf(err) != carrel.Exhausted {
		t.Errorf("a fourth of 300 MiB: %v", err)
	}
	small.Limits = carrel.Limits{} // the default is more than what is left
	if _, err := f.Create(ctx, small); carrel.KindOf(err) != carrel.Exhausted {
		t.Errorf("one of the default size: %v", err)
	}
	// What a fleet does not count is refused, and so it is for a key.
	_, err = f.Allowances().SetQuota(ctx, carrel.Holder{}, carrel.Quota{Hard: map[carrel.LimitName]carrel.Milli{carrel.LimitEgress: 1000}})
	if carrel.KindOf(err) != carrel.Unsupported || !strings.Contains(fmt.Sprint(err), "egressMB") {
		t.Errorf("a limit that is not counted: %v", err)
	}
	f.leaving()
	left := f.server.Exec(t, f.database(), "SELECT count(*) FROM carrel.shares WHERE NOT done AND project <> 'leaving'::bytea")
	if strings.TrimSpace(left) != "0" {
		t.Errorf("%s shares are left", left)
	}
}

// leaving has a caller leave in the middle of many creations, to get more sandboxes than its quota.
func (f *fleetOf) leaving() {
	t := f.t
	t.Helper()
	ctx := t.Context()
	if _, err := f.People().CreateProject(ctx, "leaving"); err != nil {
		t.Fatal(err)
	}
	const limit = 3
	f.limit("leaving", map[carrel.LimitName]carrel.Milli{carrel.LimitSandboxes: limit * 1000})
	c := f.in(0, "leaving")
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			short, cancel := context.WithTimeout(ctx, time.Duration(i*3)*time.Millisecond)
			defer cancel()
			_, _ = c.Create(short, carrel.CreateOptions{Tier: carrel.Sim, Timeout: time.Hour}) // most don't wait for it
		})
	}
	wg.Wait()
	var most int
	for i := range f.nodes { // what the nodes themselves say
		svc, err := client.New(f.nodes[i].URL, f.nodes[i].Key)
		if err != nil {
			t.Fatal(err)
		}
		page, err := svc.List(ctx, carrel.ListOptions{Project: "leaving"})
		if err != nil {
			t.Fatal(err)
		}
		most += len(page.Sandboxes)
	}
	if most > limit {
		t.Errorf("a caller who left has %d sandboxes, of %d", most, limit)
	}
	t.Logf("a caller who left has %d sandboxes, of %d", most, limit)
}
