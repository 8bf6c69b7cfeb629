package service_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/carrel-dev/carrel/internal/service"
)

// only returns the policy that the wire gets when it asks for a sandbox's rules. It fails the test
// if the wire was told any other policy. It ignores the first policies that the wire was told, as
// many as since says.
func (n *networks) only(t testing.TB, s *service.Service, id carrel.ID, since int) *policy.Policy {
	t.Helper()
	p := s.Egress(id)
	if p == nil {
		t.Fatal("the wire asks, and is told nothing")
	}
	told := n.all(id)[since:]
	if len(told) == 0 {
		t.Fatal("the wire was told nothing")
	}
	if slices.ContainsFunc(told, func(other *policy.Policy) bool { return other != p }) {
		t.Error("the rules were compiled again: the wire was told of more than one policy")
	}
	return p
}

// TestCompiledOnce shows that rules are compiled once: when a caller sets them, or when a new
// service reads them from a record. The wire gets this same policy through pauses, resumes and
// forks.
func TestCompiledOnce(t *testing.T) {
	n := &networks{}
	d := newDen(t, func(o *service.Options) { o.Networks, o.KillOnClose = n, false })
	sb := d.create(t, carrel.CreateOptions{Timeout: time.Hour, Network: carrel.Network{Internet: true}})
	created := n.only(t, d.Service, sb.ID, 0)
	if !opens(created) {
		t.Error("the sandbox does not get out")
	}
	first := d.snap(t, sb.ID, carrel.CauseRequest)

	before := len(n.all(sb.ID))
	if _, err := d.SetNetwork(t.Context(), sb.ID, carrel.Network{}); err != nil {
		t.Fatal(err)
	}
	set := n.only(t, d.Service, sb.ID, before)
	if set == created || opens(set) {
		t.Error("the rules that were set do not hold")
	}
	if _, err := d.SetNetwork(t.Context(), sb.ID, carrel.Network{DenyOut: []string{"no address"}}); !errors.Is(err, carrel.Invalid) {
		t.Errorf("broken rules: %v", err)
	}

	d.pause(t, sb.ID, carrel.PauseOptions{})
	resume := func(id carrel.ID) {
		t.Helper()
		if _, _, err := d.Resume(t.Context(), id, carrel.ResumeOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	resume(sb.ID)
	if _, err := d.Rollback(t.Context(), sb.ID, first, carrel.RollbackOptions{}); err != nil {
		t.Fatal(err)
	}
	if n.only(t, d.Service, sb.ID, before) != set || len(n.all(sb.ID)) < before+3 {
		t.Error("a resumption or a rollback changed the rules")
	}

	forks, err := d.Fork(t.Context(), sb.ID, carrel.ForkOptions{Count: 3, Timeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	shared := map[*policy.Policy]bool{}
	for _, f := range forks {
		if f.Err != nil {
			t.Fatal(f.Err)
		}
		shared[n.only(t, d.Service, f.Sandbox.ID, 0)] = true
	}
	if len(shared) != 1 {
		t.Errorf("the rules of three forks were compiled %d times", len(shared))
	}

	paused := forks[0].Sandbox.ID
	d.pause(t, paused, carrel.PauseOptions{})
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	told := map[carrel.ID]int{sb.ID: len(n.all(sb.ID)), paused: len(n.all(paused))}
	d.Service = d.open(t, d.opts)
	recovered := n.only(t, d.Service, sb.ID, told[sb.ID])
	d.pause(t, sb.ID, carrel.PauseOptions{})
	resume(sb.ID)
	resume(paused)
	if n.only(t, d.Service, sb.ID, told[sb.ID]) != recovered || opens(recovered) || opens(n.only(t, d.Service, paused, told[paused])) {
		t.Error("a new service does not keep to the rules that it found")
	}
	if p := d.Egress(carrel.NewID()); p != nil {
		t.Error("something gets out of a sandbox that is not there")
	}
}

// TestCompiledOnceWarm shows that a warm sandbox gets the policy of the request that adopts it.
func TestCompiledOnceWarm(t *testing.T) {
	n := &networks{}
	h := newWarmHouse(t, service.WarmOptions{Cap: 1, Floors: []service.WarmFloor{{Template: "base", Count: 1}}}, func(o *service.Options) { o.Networks = n })
	filled(t, h.Service, 1)
	ahead := h.drv.ids()
	sb := h.create(t, carrel.CreateOptions{Network: carrel.Network{Internet: true}})
	if !slices.Contains(ahead, sb.ID) {
		t.Fatalf("%s was not ready: %v", sb.ID, ahead)
	}
	if !opens(n.only(t, h.Service, sb.ID, 0)) {
		t.Error("the sandbox does not get out")
	}
}

// TestRulesAgree has several callers set rules at once. In the end, the record, the wire and all
// readers must have the same rules.
func TestRulesAgree(t *testing.T) {
	n := &networks{}
	h := newHouse(t, func(o *service.Options) { o.Networks = n })
	sb := h.create(t, carrel.CreateOptions{})
	for range 20 {
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				if _, err := h.SetNetwork(t.Context(), sb.ID, carrel.Network{Internet: i%2 == 0}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		got, err := h.Get(t.Context(), sb.ID)
		if err != nil {
			t.Fatal(err)
		}
		if p := h.Egress(sb.ID); p != n.of(sb.ID) || opens(p) != got.Network.Internet {
			t.Fatalf("the record says %v, the wire goes by %v, and who asks is told %v", got.Network.Internet, opens(n.of(sb.ID)), opens(p))
		}
	}
}

// TestBrokenRecordLetsNothingOut gives the service a record with rules that it would refuse. The
// sandbox lives on, and its network stays closed until a caller sets new rules.
func TestBrokenRecordLetsNothingOut(t *testing.T) {
	n := &networks{}
	change := func(o *service.Options) { o.Networks, o.KillOnClose = n, false }
	h := newHouse(t, change)
	sb := h.create(t, carrel.CreateOptions{Timeout: time.Hour, Network: carrel.Network{Internet: true}})
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	rec, err := h.store.GetSandbox(t.Context(), sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	rec.Sandbox.Network.AllowOut = []string{"not a name!"}
	if err := h.store.PutSandbox(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	h.Service = h.open(t, change)
	if got, err := h.Get(t.Context(), sb.ID); err != nil || got.State != carrel.Running {
		t.Fatalf("%+v, %v", got, err)
	}
	if p := h.Egress(sb.ID); p == nil || opens(p) || opens(n.of(sb.ID)) {
		t.Error("something gets out")
	}
	if _, err := h.SetNetwork(t.Context(), sb.ID, carrel.Network{Internet: true}); err != nil || !opens(h.Egress(sb.ID)) {
		t.Errorf("after new rules nothing gets out: %v", err)
	}
}
