package service_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/service"
)

// hungDriver is a momentDriver whose snapshots and restores can hang, whatever their context says.
type hungDriver struct {
	*momentDriver
	restoreFn func()
}

func (d *hungDriver) Restore(ctx context.Context, dir string, i driver.SnapshotInfo, s driver.Spec,
	o driver.RestoreOptions) (driver.Instance, error) {
	if d.restoreFn != nil {
		d.restoreFn()
	}
	return d.momentDriver.Restore(ctx, dir, i, s, o)
}

// killed kills a sandbox and fails the test if that waits for the hung operation. The bound is the
// promise itself: 5 s.
func killed(t *testing.T, d *den, id carrel.ID) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := d.Kill(ctx, id); err != nil {
		t.Fatalf("kill: %v", err)
	}
	if _, err := d.Get(t.Context(), id); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("a killed sandbox: %v", err)
	}
	if recs, err := d.store.Sandboxes(t.Context()); err != nil || len(recs) != 0 {
		t.Errorf("records left: %v, %v", recs, err)
	}
}

// TestKillEndsAHungPause kills a sandbox while its driver never finishes a snapshot.
func TestKillEndsAHungPause(t *testing.T) {
	d := newDen(t, nil)
	hangs, release := make(chan struct{}), make(chan struct{})
	d.moments.set(func() { d.moments.snapFn = func() { close(hangs); <-release } })
	sb := d.create(t, carrel.CreateOptions{Timeout: time.Hour})
	var wg sync.WaitGroup
	var perr error
	wg.Go(func() {
		_, perr = d.Pause(context.WithoutCancel(t.Context()), sb.ID,
			carrel.PauseOptions{})
	})
	<-hangs
	killed(t, d, sb.ID)
	if ids := d.moments.ids(); len(ids) != 0 {
		t.Errorf("instances left: %v", ids)
	}
	close(release)
	wg.Wait()
	if carrel.KindOf(perr) != carrel.NotFound {
		t.Errorf("the hung pause: %v", perr)
	}
	if st := d.Stats(); st.Running+st.Stopping != 0 {
		t.Errorf("counted: %+v", st)
	}
	d.consistent(t)
}

// TestKillEndsAHungResume kills a sandbox while its driver never finishes a restore.
func TestKillEndsAHungResume(t *testing.T) {
	hangs, release := make(chan struct{}), make(chan struct{})
	h := &hungDriver{}
	d := newDen(t, func(o *service.Options) {
		h.momentDriver = o.Drivers.All()[0].(*momentDriver)
		o.Drivers = driver.NewRegistry(h)
		o.MaxSandboxes = 1
	})
	sb := d.create(t, carrel.CreateOptions{Timeout: time.Hour})
	d.pause(t, sb.ID, carrel.PauseOptions{})
	h.restoreFn = func() { close(hangs); <-release }
	var wg sync.WaitGroup
	var rerr error
	wg.Go(func() {
		_, _, rerr = d.Resume(context.WithoutCancel(t.Context()), sb.ID,
			carrel.ResumeOptions{})
	})
	<-hangs
	killed(t, d, sb.ID)
	close(release)
	wg.Wait()
	if rerr == nil {
		t.Error("the hung resumption succeeded")
	}
	h.restoreFn = nil
	again := d.create(t, carrel.CreateOptions{Timeout: time.Hour}) // the only place is free again
	if _, err := d.Create(t.Context(), carrel.CreateOptions{}); carrel.KindOf(
		err) != carrel.Exhausted {
		t.Errorf("a second sandbox in one place: %v", err)
	}
	if err := d.Kill(t.Context(), again.ID); err != nil {
		t.Error(err)
	}
	d.consistent(t)
}
