package service_test

import (
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/service"
)

func TestBadLifecycle(t *testing.T) {
	d := newDen(t, func(o *service.Options) { o.MaxLimits.CPUs = 4 })
	sb := d.create(t, carrel.CreateOptions{})
	idle := func(i carrel.Idle) carrel.Lifecycle { return carrel.Lifecycle{Idle: i} }
	points := func(c carrel.Checkpoints) carrel.Lifecycle { return carrel.Lifecycle{Checkpoints: c} }
	keep := func(r carrel.Retention) carrel.Lifecycle { return carrel.Lifecycle{Retention: r} }
	for _, c := range []struct {
		field string
		l     carrel.Lifecycle
	}{
		{"onTimeout", carrel.Lifecycle{OnTimeout: "explode"}},
		{"idle.after", idle(carrel.Idle{After: 4 * time.Second})},
		{"idle.after", idle(carrel.Idle{After: -1})},
		{"idle.after", idle(carrel.Idle{After: math.MaxInt64})},
		{"idle.cpuPct", idle(carrel.Idle{CPUPct: math.NaN()})},
		{"idle.cpuPct", idle(carrel.Idle{CPUPct: math.Inf(1)})},
		{"idle.cpuPct", idle(carrel.Idle{CPUPct: -0.1})},
		{"idle.cpuPct", idle(carrel.Idle{CPUPct: 401})},
		{"checkpoints.every", points(carrel.Checkpoints{Every: 9 * time.Second})},
		{"checkpoints.every", points(carrel.Checkpoints{Every: -time.Hour})},
		{"checkpoints.before", points(carrel.Checkpoints{Before: []string{"("}})},
		{"checkpoints.before", points(carrel.Checkpoints{Before: []string{""}})},
		{"checkpoints.before", points(carrel.Checkpoints{Before: []string{"\xff"}})},
		{"checkpoints.before", points(carrel.Checkpoints{Before: []string{strings.Repeat("a", 513)}})},
		{"checkpoints.before", points(carrel.Checkpoints{Before: []string{"(a{999}){999}"}})}, // too large a program
		{"checkpoints.before", points(carrel.Checkpoints{Before: make([]string, 33)})},
		{"retention.last", keep(carrel.Retention{Last: -1})},
		{"retention.last", keep(carrel.Retention{Last: math.MaxInt})},
		{"retention.for", keep(carrel.Retention{For: -1})},
		{"retention.for", keep(carrel.Retention{For: math.MaxInt64})},
	} {
		for _, err := range []error{second(d.SetLifecycle(t.Context(), sb.ID, c.l)), second(d.Create(t.Context(), carrel.CreateOptions{Lifecycle: c.l}))} {
			var ce *carrel.Error
			if !errors.As(err, &ce) || ce.Kind != carrel.Invalid || ce.Field != "lifecycle."+c.field || len(err.Error()) > 500 {
				t.Errorf("%s: %v", c.field, err)
			}
		}
	}
	if _, err := d.SetLifecycle(t.Context(), carrel.NewID(), carrel.Lifecycle{}); !errors.Is(err, carrel.NotFound) {
		t.Errorf("of nobody: %v", err)
	}
}

// TestLifecycleNeedsSnapshots shows that rules which the driver can't follow are refused when they
// are set, and not later when they are due.
func TestLifecycleNeedsSnapshots(t *testing.T) {
	h := newHouse(t, nil)
	sb := h.create(t, carrel.CreateOptions{})
	for field, l := range map[string]carrel.Lifecycle{
		"onTimeout":   {OnTimeout: carrel.ActionPause},
		"idle":        {Idle: carrel.Idle{After: time.Minute}},
		"checkpoints": {Checkpoints: carrel.Checkpoints{Before: []string{"rm"}}},
	} {
		for _, err := range []error{second(h.SetLifecycle(t.Context(), sb.ID, l)), second(h.Create(t.Context(), carrel.CreateOptions{Lifecycle: l}))} {
			if !errors.Is(err, carrel.Unsupported) {
				t.Errorf("%s: %v, want Unsupported", field, err)
			}
		}
	}
	if _, err := h.SetLifecycle(t.Context(), sb.ID, carrel.Lifecycle{OnTimeout: carrel.ActionKill}); err != nil {
		t.Error(err)
	}
}

func TestSetLifecycle(t *testing.T) {
	d := newDen(t, nil)
	sb := d.create(t, carrel.CreateOptions{})
	inits := func() int { return len(d.moments.get(sb.ID).inits()) }
	l := carrel.Lifecycle{OnTimeout: carrel.ActionPause, AutoResume: true, Idle: carrel.Idle{After: time.Hour, CPUPct: 150}}
	got, err := d.SetLifecycle(t.Context(), sb.ID, l)
	if err != nil || got.Lifecycle.Idle != l.Idle || got.Lifecycle.OnTimeout != carrel.ActionPause {
		t.Fatalf("%+v, %v", got.Lifecycle, err)
	}
	if n := inits(); n != 1 {
		t.Errorf("the guest was told %d times of what is not its business", n)
	}
	l.Checkpoints.Before = []string{"^rm ", "git push"}
	if got, err = d.SetLifecycle(t.Context(), sb.ID, l); err != nil {
		t.Fatal(err)
	}
	l.Checkpoints.Before[0] = "changed"
	if now, _ := d.Get(t.Context(), sb.ID); now.Lifecycle.Checkpoints.Before[0] != "^rm " {
		t.Error("a change of the caller's slice reached the service")
	}
	all := d.moments.get(sb.ID).inits()
	if last := all[len(all)-1]; len(all) != 2 || len(last.CheckpointBefore) != 2 || last.CheckpointBefore[0] != "^rm " || last.Restored {
		t.Errorf("the guest was told %+v", all)
	}
	rec, err := d.store.GetSandbox(t.Context(), sb.ID)
	if err != nil || rec.Sandbox.Lifecycle.Checkpoints.Before[1] != "git push" || rec.Sandbox.State != carrel.Running {
		t.Errorf("recorded %+v, %v", rec.Sandbox, err)
	}
	// The guest of a paused sandbox gets the new rules when it is back.
	if _, err := d.Pause(t.Context(), sb.ID, carrel.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	l.Checkpoints.Before = []string{"x"}
	if got, err = d.SetLifecycle(t.Context(), sb.ID, l); err != nil || got.State != carrel.Paused {
		t.Fatalf("%+v, %v", got, err)
	}
	if rec, err = d.store.GetSandbox(t.Context(), sb.ID); err != nil || rec.Sandbox.State != carrel.Paused || len(rec.Sandbox.Lifecycle.Checkpoints.Before) != 1 {
		t.Errorf("recorded %+v, %v", rec.Sandbox, err)
	}
	if _, _, err := d.Resume(t.Context(), sb.ID, carrel.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	if all = d.moments.get(sb.ID).inits(); len(all) != 1 || len(all[0].CheckpointBefore) != 1 {
		t.Errorf("after the resumption the guest was told %+v", all)
	}
}

// TestSetLifecycleRace changes the lifecycle while the sandbox pauses and resumes.
func TestSetLifecycleRace(t *testing.T) {
	d := newDen(t, nil)
	sb := d.create(t, carrel.CreateOptions{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 20 {
			if _, err := d.Pause(t.Context(), sb.ID, carrel.PauseOptions{}); err != nil {
				t.Error(err)
			}
			if _, _, err := d.Resume(t.Context(), sb.ID, carrel.ResumeOptions{}); err != nil {
				t.Error(err)
			}
		}
	})
	for range 3 {
		wg.Go(func() {
			for i := range 20 {
				l := carrel.Lifecycle{Retention: carrel.Retention{Last: i + 1}, Checkpoints: carrel.Checkpoints{Before: []string{strings.Repeat("x", i+1)}}}
				if _, err := d.SetLifecycle(t.Context(), sb.ID, l); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	rec, err := d.store.GetSandbox(t.Context(), sb.ID)
	now, _ := d.Get(t.Context(), sb.ID)
	if err != nil || rec.Sandbox.State != carrel.Running || rec.Sandbox.Lifecycle.Retention.Last != 20 || now.Lifecycle.Retention.Last != 20 {
		t.Errorf("recorded %+v, %v", rec.Sandbox, err)
	}
	all := d.moments.get(sb.ID).inits()
	if last := all[len(all)-1]; len(last.CheckpointBefore) != 1 || len(last.CheckpointBefore[0]) != 20 {
		t.Errorf("the guest was told %+v last", last.CheckpointBefore)
	}
}
