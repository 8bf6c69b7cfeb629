package service_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/ceiling"
	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/carrel-dev/carrel/internal/quota"
	"github.com/carrel-dev/carrel/internal/service"
)

// allowances are an Allowances that a test sets.
type allowances struct {
	mu       sync.Mutex
	quotas   []quota.Bound
	ceilings map[carrel.Holder]carrel.Ceiling
	held     error
	muted    bool
}

func (a *allowances) set(fn func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	fn()
}

// limit sets a hard limit of project p, or of one of its keys.
func (a *allowances) limit(key string, name carrel.LimitName, n carrel.Milli) {
	a.set(func() {
		a.quotas = append(a.quotas, quota.Bound{Holder: carrel.Holder{Project: "p", Key: key}, Of: "project p" + key,
			Quota: carrel.Quota{Hard: map[carrel.LimitName]carrel.Milli{name: n}}})
	})
}

func (a *allowances) Quotas(project, key string) (out []quota.Bound) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range a.quotas {
		if b.Project == project && (b.Key == "" || b.Key == key) {
			out = append(out, b)
		}
	}
	return out
}

func (a *allowances) Ceilings(project, key string) (out []ceiling.Bound) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range []carrel.Holder{{Project: project}, {Project: project, Key: key}} {
		if c, ok := a.ceilings[h]; ok && (h.Key != "" || h == (carrel.Holder{Project: project})) {
			out = append(out, ceiling.Bound{Of: "project " + project + key, Ceiling: c})
		}
	}
	return out
}

func (a *allowances) Held(_, project, _ string, _ map[string]string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if project != "p" {
		return nil
	}
	return a.held
}

func (a *allowances) Muted(project, _ string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.muted && project == "p"
}

// by is a context of a key of a project.
func by(t testing.TB, project, key string) context.Context {
	t.Helper()
	return carrel.WithCaller(t.Context(), carrel.Caller{Key: "name of " + key, KeyID: key, Project: project, Role: carrel.RoleMember})
}

// TestQuotaRace creates 100 sandboxes at once at a limit of 10, again after a service that was not
// closed in order, and in a mix with kills. There are never 11.
func TestQuotaRace(t *testing.T) {
	a := &allowances{}
	a.limit("", carrel.LimitSandboxes, 10*quota.One)
	d := newDen(t, func(o *service.Options) { o.Allowances, o.KillOnClose = a, false })
	storm := func(s *service.Service, want int32) {
		t.Helper()
		var made, refused atomic.Int32
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				_, err := s.Create(by(t, "p", fmt.Sprint("k", i%3)), carrel.CreateOptions{Timeout: time.Hour})
				hit := carrel.LimitOf(err)
				switch {
				case err == nil:
					made.Add(1)
				case carrel.KindOf(err) == carrel.Exhausted && hit != nil && hit.Name == carrel.LimitSandboxes && hit.Limit == 10000 && hit.Used == 10000:
					refused.Add(1)
				default:
					t.Errorf("%v (%+v)", err, hit)
				}
			})
		}
		wg.Wait()
		if made.Load() != want || refused.Load() != 100-want {
			t.Errorf("%d were made and %d refused, want %d made", made.Load(), refused.Load(), want)
		}
	}
	storm(d.Service, 10)
	if n := len(d.moments.ids()); n != 10 {
		t.Fatalf("%d live", n)
	}
	_, err := d.Create(by(t, "p", ""), carrel.CreateOptions{})
	if after := carrel.RetryAfterOf(err); after < 59*time.Minute || after > time.Hour {
		t.Errorf("again after %v, want when the first ends", after)
	}
	if _, err := d.Create(by(t, "q", ""), carrel.CreateOptions{}); err != nil {
		t.Errorf("another project pays: %v", err)
	}
	if used := d.QuotaUse(carrel.Holder{Project: "p"})[carrel.LimitSandboxes]; used != 10*quota.One {
		t.Errorf("the project uses %v", used)
	}

	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	again := d.open(t, func(o *service.Options) { d.opts(o); o.KillOnClose = true }) // nothing was counted for it
	storm(again, 0)
	ids := d.moments.ids()
	mine := slices.DeleteFunc(ids, func(id carrel.ID) bool { p, _ := again.Project(id); return p != "p" })
	for _, id := range mine[:4] {
		if err := again.Kill(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	storm(again, 4)
	if _, err := again.Pause(t.Context(), mine[5], carrel.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	storm(again, 1) // a paused sandbox holds no place
	if _, _, err := again.Resume(by(t, "p", ""), mine[5], carrel.ResumeOptions{}); carrel.LimitOf(err) == nil {
		t.Errorf("a resumption above the quota: %v", err)
	}
}

// TestQuotaLimits passes each limit, of the project and of a key alone.
func TestQuotaLimits(t *testing.T) {
	size := carrel.CreateOptions{Timeout: time.Hour, Limits: carrel.Limits{CPUs: 1.5, MemoryMB: 100, DiskMB: 300, Pids: 100}}
	for _, c := range []struct {
		name    carrel.LimitName
		limit   carrel.Milli
		fit     int // so many sandboxes
		another func(d *den, sb carrel.Sandbox) error
	}{
		{carrel.LimitSandboxes, 2000, 2, nil},
		{carrel.LimitVCPUs, 4400, 2, nil},
		{carrel.LimitMemory, 299_000, 2, nil},
		{carrel.LimitDisk, 300_000, 1, nil},
		{carrel.LimitCreates, 3000, 3, nil},
		{carrel.LimitForks, 2000, 1, func(d *den, sb carrel.Sandbox) error {
			if _, err := d.Fork(by(t, "p", "k"), sb.ID, carrel.ForkOptions{Count: 2}); err != nil {
				t.Error(err)
			}
			_, err := d.Fork(by(t, "p", "k"), sb.ID, carrel.ForkOptions{Count: 3})
			return err
		}},
		{carrel.LimitSnapshots, 2, 1, func(d *den, sb carrel.Sandbox) error { // each has a thousandth
			for range 2 {
				if _, err := d.Snapshot(by(t, "p", "k"), sb.ID, carrel.SnapshotOptions{}); err != nil {
					t.Error(err)
				}
			}
			if _, err := d.Pause(by(t, "p", "k"), sb.ID, carrel.PauseOptions{}); carrel.LimitOf(err) == nil {
				t.Errorf("a pause above the quota of snapshots: %v", err)
			}
			if got, err := d.Get(t.Context(), sb.ID); err != nil || got.State != carrel.Running {
				t.Errorf("a refused pause leaves it %v, %v", got.State, err)
			}
			_, err := d.Snapshot(by(t, "p", "k"), sb.ID, carrel.SnapshotOptions{})
			return err
		}},
	} {
		for _, key := range []string{"", "k"} {
			t.Run(string(c.name)+key, func(t *testing.T) {
				a := &allowances{}
				a.limit(key, c.name, c.limit)
				d := newDen(t, func(o *service.Options) { o.Allowances = a })
				var last carrel.Sandbox
				for range c.fit {
					var err error
					if last, err = d.Create(by(t, "p", "k"), size); err != nil {
						t.Fatal(err)
					}
				}
				another := c.another
				if another == nil {
					another = func(d *den, _ carrel.Sandbox) error { _, err := d.Create(by(t, "p", "k"), size); return err }
				}
				err := another(d, last)
				hit := carrel.LimitOf(err)
				if carrel.KindOf(err) != carrel.Exhausted || hit == nil || hit.Name != c.name || hit.Limit != c.limit || hit.Key != key {
					t.Fatalf("%v (%+v)", err, hit)
				}
				after := carrel.RetryAfterOf(err)
				if c.name == carrel.LimitCreates && (after <= 58*time.Second || after > time.Minute) {
					t.Errorf("again after %v", after)
				}
				if !strings.Contains(err.Error(), hit.Limit.String()) || !strings.Contains(err.Error(), "project p"+key) {
					t.Errorf("%v does not name the limit and whose it is", err)
				}
				if key != "" && c.another == nil {
					if _, err := d.Create(by(t, "p", "other"), size); err != nil {
						t.Errorf("another key pays: %v", err)
					}
				}
			})
		}
	}
}

// TestQuotaFailed shows that a creation that fails leaves nothing in the book, and that the creations
// of a minute are known to the next service.
func TestQuotaFailed(t *testing.T) {
	a := &allowances{}
	a.limit("", carrel.LimitCreates, 3*quota.One)
	a.limit("", carrel.LimitSandboxes, 3*quota.One)
	d := newDen(t, func(o *service.Options) { o.Allowances, o.KillOnClose = a, false })
	d.moments.InitFn = func(carrel.ID) int { return 400 }
	for range 5 {
		if _, err := d.Create(by(t, "p", "k"), carrel.CreateOptions{}); err == nil || carrel.LimitOf(err) != nil {
			t.Fatalf("want a failure of the guest: %v", err)
		}
	}
	d.moments.InitFn = nil
	for range 3 {
		sb, err := d.Create(by(t, "p", "k"), carrel.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Kill(t.Context(), sb.ID); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	again := d.open(t, d.opts)
	_, err := again.Create(by(t, "p", "k"), carrel.CreateOptions{})
	if hit := carrel.LimitOf(err); hit == nil || hit.Name != carrel.LimitCreates {
		t.Errorf("the next service does not know the creations of the minute: %v", err)
	}
}

// TestQuotaSoft shows that a soft limit warns once when it is passed, and refuses nothing.
func TestQuotaSoft(t *testing.T) {
	a := &allowances{quotas: []quota.Bound{{Holder: carrel.Holder{Project: "p"}, Of: "project p",
		Quota: carrel.Quota{Soft: map[carrel.LimitName]carrel.Milli{carrel.LimitSandboxes: 2 * quota.One}}}}}
	d := newDen(t, func(o *service.Options) { o.Allowances = a })
	for range 4 {
		if _, err := d.Create(by(t, "p", "k"), carrel.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for _, e := range d.events(t) {
		if e.Type == "quota.soft" {
			n++
			if e.Project != "p" || e.Fields["limit"] != "sandboxes" || e.Fields["used"] != "3" {
				t.Errorf("%+v", e)
			}
		}
	}
	if n != 1 {
		t.Errorf("it warned %d times", n)
	}
}

// TestCeilingDoors goes through every door that makes or widens a sandbox, with a ceiling of the
// project, and with one of the caller's key alone.
func TestCeilingDoors(t *testing.T) {
	names := carrel.Network{AllowOut: []string{"api.example.com"}, DenyOut: []string{"0.0.0.0/0"}, Internet: true}
	wide := carrel.Network{AllowOut: []string{"example.org"}, DenyOut: []string{"0.0.0.0/0"}}
	injects := func(secret string) carrel.Network {
		return carrel.Network{Policy: &carrel.Policy{Rules: []carrel.Rule{{Allow: []string{"api.example.com"}}},
			Inject: []carrel.Injection{{Host: "api.example.com", Bearer: secret}}}}
	}
	egress := carrel.Ceiling{Egress: []string{"*.example.com"}}
	hour := carrel.Ceiling{Timeout: time.Hour}
	size := carrel.Ceiling{Limits: carrel.Limits{CPUs: 1, MemoryMB: 64}}
	create := func(o carrel.CreateOptions) func(context.Context, *den, carrel.ID) error {
		return func(ctx context.Context, d *den, _ carrel.ID) error { _, err := d.Create(ctx, o); return err }
	}
	for _, c := range []struct {
		name    string
		ceiling carrel.Ceiling
		do      func(ctx context.Context, d *den, id carrel.ID) error
		field   string // of the refusal; "" for what is allowed
	}{
		{"tier", carrel.Ceiling{Tiers: []carrel.Tier{carrel.GVisor}}, create(carrel.CreateOptions{}), "tier"},
		{"tier allowed", carrel.Ceiling{Tiers: []carrel.Tier{carrel.Sim}}, create(carrel.CreateOptions{}), ""},
		{"template", carrel.Ceiling{Templates: []string{"python"}}, create(carrel.CreateOptions{Template: "base"}), "template"},
		{"no template", carrel.Ceiling{Templates: []string{}}, create(carrel.CreateOptions{}), "template"},
		{"template allowed", carrel.Ceiling{Templates: []string{"base"}}, create(carrel.CreateOptions{}), ""},
		{"template by ID", carrel.Ceiling{Templates: []string{baseTemplate.ID}}, create(carrel.CreateOptions{}), ""},
		{"cpus", size, create(carrel.CreateOptions{Limits: carrel.Limits{CPUs: 1.5}}), "cpuCount"},
		{"memory", size, create(carrel.CreateOptions{Limits: carrel.Limits{MemoryMB: 65}}), "memoryMB"},
		{"disk", carrel.Ceiling{Limits: carrel.Limits{DiskMB: 5}}, create(carrel.CreateOptions{Limits: carrel.Limits{DiskMB: 6}}), "diskSizeMB"},
		{"pids", carrel.Ceiling{Limits: carrel.Limits{Pids: 50}}, create(carrel.CreateOptions{Limits: carrel.Limits{Pids: 51}}), "pids"},
		{"default size", size, create(carrel.CreateOptions{}), ""},
		{"timeout", hour, create(carrel.CreateOptions{Timeout: 61 * time.Minute}), "timeout"},
		{"no timeout", hour, create(carrel.CreateOptions{NoTimeout: true}), "timeout"},
		{"default timeout", carrel.Ceiling{Timeout: time.Minute}, create(carrel.CreateOptions{}), ""},
		{"internet", egress, create(carrel.CreateOptions{Network: carrel.Network{Internet: true}}), "internet"},
		{"host", egress, create(carrel.CreateOptions{Network: wide}), "allowOut[0]"},
		{"host allowed", egress, create(carrel.CreateOptions{Network: names}), ""},
		{"default allow", egress, create(carrel.CreateOptions{Network: carrel.Network{Policy: &carrel.Policy{Default: "allow"}}}), "policy.default"},
		{"preset", egress, create(carrel.CreateOptions{Network: carrel.Network{Policy: &carrel.Policy{Presets: []string{"github"}}}}), "policy.presets[0]"},
		{"address", egress, create(carrel.CreateOptions{Network: carrel.Network{AllowOut: []string{"192.0.2.0/24"}}}), "allowOut[0]"},
		{"wider block", carrel.Ceiling{Egress: []string{"192.0.2.0/24"}}, create(carrel.CreateOptions{Network: carrel.Network{AllowOut: []string{"192.0.0.0/16"}}}), "allowOut[0]"},
		{"proxy", egress, create(carrel.CreateOptions{Network: carrel.Network{EgressProxy: &carrel.EgressProxy{Address: "proxy.example.org:1080"}}}), "egressProxy.address"},
		{"no egress", carrel.Ceiling{Egress: []string{}}, create(carrel.CreateOptions{Network: names}), "allowOut[0]"},
		{"nothing asked", carrel.Ceiling{Egress: []string{}}, create(carrel.CreateOptions{}), ""},
		{"secret", carrel.Ceiling{Secrets: []string{"mine"}}, create(carrel.CreateOptions{Network: injects("other")}), "policy.inject[0].bearer"},
		{"secret allowed", carrel.Ceiling{Secrets: []string{"mine"}}, create(carrel.CreateOptions{Network: injects("mine")}), ""},
		{"secret in E2B's form", carrel.Ceiling{Secrets: []string{"mine"}}, create(carrel.CreateOptions{Network: carrel.Network{Internet: true,
			Rules: map[string][]carrel.NetworkRule{"api.example.com": {{Transform: &carrel.NetworkTransform{Headers: map[string]string{"X-Key": "a ${e2b.secrets.other}"}}}}}}}), "rules.api.example.com"},

		{"fork with a timeout", hour, func(ctx context.Context, d *den, id carrel.ID) error {
			all, err := d.Fork(ctx, id, carrel.ForkOptions{Timeout: 2 * time.Hour})
			if err == nil {
				err = all[0].Err
			}
			return err
		}, "timeout"},
		{"connect with a timeout", hour, func(ctx context.Context, d *den, id carrel.ID) error {
			_, _, err := d.Resume(ctx, id, carrel.ResumeOptions{Timeout: 2 * time.Hour})
			return err
		}, "timeout"},
		{"resume with a timeout", hour, func(ctx context.Context, d *den, id carrel.ID) error {
			if _, err := d.Pause(t.Context(), id, carrel.PauseOptions{}); err != nil {
				return err
			}
			_, _, err := d.Resume(ctx, id, carrel.ResumeOptions{Timeout: 2 * time.Hour})
			return err
		}, "timeout"},
		{"set timeout", hour, func(ctx context.Context, d *den, id carrel.ID) error {
			_, err := d.SetTimeout(ctx, id, 2*time.Hour, false)
			return err
		}, "timeout"},
		{"extend", hour, func(ctx context.Context, d *den, id carrel.ID) error {
			_, err := d.SetTimeout(ctx, id, 2*time.Hour, true)
			return err
		}, "timeout"},
		{"set network", egress, func(ctx context.Context, d *den, id carrel.ID) error {
			_, err := d.SetNetwork(ctx, id, wide)
			return err
		}, "allowOut[0]"},
		{"set network allowed", egress, func(ctx context.Context, d *den, id carrel.ID) error {
			_, err := d.SetNetwork(ctx, id, names)
			return err
		}, ""},
		{"set network with a secret", carrel.Ceiling{Secrets: []string{}}, func(ctx context.Context, d *den, id carrel.ID) error {
			_, err := d.SetNetwork(ctx, id, injects("any"))
			return err
		}, "policy.inject[0].bearer"},
		{"workshop of a build", egress, func(ctx context.Context, d *den, _ carrel.ID) error {
			_, err := d.CreateWorkshop(ctx, "b", baseTemplate.ID, "", carrel.CreateOptions{Network: wide})
			return err
		}, "allowOut[0]"},
	} {
		for _, key := range []string{"", "k"} {
			t.Run(c.name+key, func(t *testing.T) {
				a := &allowances{}
				d := newDen(t, func(o *service.Options) { o.Allowances = a })
				sb, err := d.Create(by(t, "p", "before"), carrel.CreateOptions{Timeout: time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				a.set(func() { a.ceilings = map[carrel.Holder]carrel.Ceiling{{Project: "p", Key: key}: c.ceiling} })
				err = c.do(by(t, "p", "k"), d, sb.ID)
				var e *carrel.Error
				switch {
				case c.field == "" && err != nil:
					t.Errorf("it is within, and refused: %v", err)
				case c.field == "":
				case carrel.KindOf(err) != carrel.Forbidden:
					t.Errorf("%v, want it to be forbidden", err)
				default:
					e = err.(*carrel.Error)
					if e.Field != c.field || !strings.Contains(err.Error(), "the ceiling ") || !strings.Contains(err.Error(), "project p"+key) {
						t.Errorf("%v names the field %q, want %q, the ceiling and whose it is", err, e.Field, c.field)
					}
				}
			})
		}
	}
}

// TestCeilingLowered shows that what was made before a ceiling is not resumed, forked or copied past
// it.
func TestCeilingLowered(t *testing.T) {
	a := &allowances{}
	d := newDen(t, func(o *service.Options) { o.Allowances = a })
	sb, err := d.Create(by(t, "p", "k"), carrel.CreateOptions{Network: carrel.Network{Internet: true}})
	if err != nil {
		t.Fatal(err)
	}
	sn, err := d.Snapshot(t.Context(), sb.ID, carrel.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	a.set(func() {
		a.ceilings = map[carrel.Holder]carrel.Ceiling{{Project: "p"}: {Egress: []string{"*.example.com"}, Templates: []string{"python"}}}
	})
	all, err := d.Fork(by(t, "p", "k"), sb.ID, carrel.ForkOptions{})
	if err != nil || carrel.KindOf(all[0].Err) != carrel.Forbidden {
		t.Errorf("fork: %v, %v", all, err)
	}
	if _, err := d.Create(by(t, "p", "k"), carrel.CreateOptions{Template: string(sn.ID)}); carrel.KindOf(err) != carrel.Forbidden {
		t.Errorf("a copy of the snapshot: %v", err)
	}
	if _, err := d.Pause(t.Context(), sb.ID, carrel.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Resume(by(t, "p", "k"), sb.ID, carrel.ResumeOptions{}); carrel.KindOf(err) != carrel.Forbidden {
		t.Errorf("resume: %v", err)
	}
	visitor := carrel.WithCaller(t.Context(), carrel.Caller{Key: "visitor", Project: "p", Role: carrel.RoleVisitor, Sandbox: sb.ID})
	if _, _, err := d.Resume(visitor, sb.ID, carrel.ResumeOptions{}); carrel.KindOf(err) != carrel.Forbidden {
		t.Errorf("a visitor wakes it: %v", err)
	}
}

// TestHeld shows that a spent budget refuses, and that PauseHeld pauses what runs.
func TestHeld(t *testing.T) {
	a := &allowances{}
	d := newDen(t, func(o *service.Options) { o.Allowances = a })
	sb, err := d.Create(by(t, "p", "k"), carrel.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	other, err := d.Create(by(t, "q", ""), carrel.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	a.set(func() { a.held = &carrel.Error{Kind: carrel.Exhausted, Field: "budget"} })
	if n := d.PauseHeld(t.Context(), "p"); n != 0 {
		t.Errorf("%d could not be paused", n)
	}
	if got, err := d.Get(t.Context(), sb.ID); err != nil || got.State != carrel.Paused {
		t.Errorf("it is %v, %v", got.State, err)
	}
	if got, err := d.Get(t.Context(), other.ID); err != nil || got.State != carrel.Running {
		t.Errorf("another project's is %v, %v", got.State, err)
	}
	if _, err := d.Create(by(t, "p", "k"), carrel.CreateOptions{}); carrel.KindOf(err) != carrel.Exhausted {
		t.Errorf("create: %v", err)
	}
	if _, _, err := d.Resume(by(t, "p", "k"), sb.ID, carrel.ResumeOptions{}); carrel.KindOf(err) != carrel.Exhausted {
		t.Errorf("resume: %v", err)
	}
	a.set(func() { a.held = nil })
	if _, _, err := d.Resume(by(t, "p", "k"), sb.ID, carrel.ResumeOptions{}); err != nil {
		t.Error(err)
	}
}

// TestMuted shows that nothing leaves the sandboxes of a project whose traffic is used up.
func TestMuted(t *testing.T) {
	a := &allowances{}
	n := &fakeNetworks{}
	d := newDen(t, func(o *service.Options) { o.Allowances, o.Networks = a, n })
	sb, err := d.Create(by(t, "p", "k"), carrel.CreateOptions{Network: carrel.Network{Internet: true}})
	if err != nil {
		t.Fatal(err)
	}
	open := func() bool { return n.policy(sb.ID).JudgeName("example.com").Allow }
	if !open() {
		t.Fatal("it is closed before")
	}
	a.set(func() { a.muted = true })
	d.Remute("p")
	if open() || d.Egress(sb.ID).JudgeName("example.com").Allow {
		t.Error("something gets out")
	}
	if v := n.policy(sb.ID).JudgeName("example.com"); !strings.Contains(v.Rule+v.Reason, "quota") {
		t.Errorf("the refusal does not name the quota: %+v", v)
	}
	a.set(func() { a.muted = false })
	d.Remute("p")
	if !open() {
		t.Error("it stays closed")
	}
}

// fakeNetworks remembers the policies.
type fakeNetworks struct {
	mu  sync.Mutex
	all map[carrel.ID]*policy.Policy
}

func (f *fakeNetworks) SetNetwork(id carrel.ID, p *policy.Policy) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = map[carrel.ID]*policy.Policy{}
	}
	f.all[id] = p
	return nil
}

func (f *fakeNetworks) policy(id carrel.ID) *policy.Policy {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all[id]
}

func (f *fakeNetworks) Traffic(carrel.ID) (sent, received int64) { return 0, 0 }
