package gvisor_test

import (
	"errors"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
)

// TestLater restores a memory with a hold of an hour, and with one that has no end. Only pages that a
// task waits for may be read. A snapshot must still contain all pages, so it reads the rest. The test
// also shows that gVisor's types are still the ones in which the hold finds the count of waiting
// tasks.
func TestLater(t *testing.T) {
	t.Parallel() // it mostly waits, as the others do that say so
	for _, later := range []time.Duration{time.Hour, driver.WhenWanted} {
		t.Run(later.String(), func(t *testing.T) { testLater(t, later) })
	}
}

func testLater(t *testing.T, later time.Duration) {
	d, _ := newDriver(t)
	in := create(t, d, stateSpec(t))
	startState(t, in, 20, 100)
	dir, info := snapshot(t, in, driver.SnapshotOptions{})
	r := restore(t, d, dir, info, stateSpec(t), driver.RestoreOptions{Later: later})
	if got := askState(t, r, "pipe"); got != "in the pipe" {
		t.Errorf("the pipe: %q", got)
	}
	l, ok := driver.As[driver.Loader](r)
	if !ok {
		t.Fatal("no Loader")
	}
	ctx, cancel := contextFor(t, time.Second)
	defer cancel()
	if err := l.Loaded(ctx); carrel.KindOf(err) != carrel.TimedOut && !errors.Is(err, ctx.Err()) {
		t.Errorf("all of it is loaded, or never will be: %v", err)
	}
	again, info := snapshot(t, r, driver.SnapshotOptions{})
	loaded(t, r)
	wantState(t, r)
	wantState(t, restore(t, d, again, info, stateSpec(t), driver.RestoreOptions{}))
}

// TestLaterAllWanted restores a memory with a hold. A program then asks for all of it.
func TestLaterAllWanted(t *testing.T) {
	t.Parallel()
	d, _ := newDriver(t)
	in := create(t, d, stateSpec(t))
	startState(t, in, 40, 500)
	dir, info := snapshot(t, in, driver.SnapshotOptions{})
	r := restore(t, d, dir, info, stateSpec(t), driver.RestoreOptions{Later: 2 * time.Second})
	wantState(t, r)
	loaded(t, r)
	wantState(t, r)
	wanted := restore(t, d, dir, info, stateSpec(t), driver.RestoreOptions{Later: driver.WhenWanted})
	wantState(t, wanted)
	wantState(t, wanted)
}
