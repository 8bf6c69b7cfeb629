package service_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/service"
)

// inDen runs f with a fake clock.
func inDen(t *testing.T, change func(*service.Options), f func(t *testing.T, d *den)) {
	synctest.Test(t, func(t *testing.T) { f(t, newDen(t, change)) })
}

// take takes n snapshots, a minute apart.
func (d *den) take(t *testing.T, id carrel.ID, cause carrel.Cause, n int) (out []carrel.SnapshotID) {
	t.Helper()
	for range n {
		time.Sleep(time.Minute)
		out = append(out, d.snap(t, id, cause))
		synctest.Wait() // its prune
	}
	return out
}

func TestRetention(t *testing.T) {
	for name, c := range map[string]struct {
		rule carrel.Retention
		def  carrel.Retention
		n    int
		want int
	}{
		"default":           {n: 23, want: 20},
		"service's":         {def: carrel.Retention{Last: 3}, n: 5, want: 3},
		"own":               {rule: carrel.Retention{Last: 2}, def: carrel.Retention{Last: 4}, n: 5, want: 2},
		"last one":          {rule: carrel.Retention{Last: 1}, n: 3, want: 1},
		"young":             {rule: carrel.Retention{Last: 1, For: 210 * time.Second}, n: 10, want: 4},
		"young and default": {rule: carrel.Retention{For: time.Second}, n: 22, want: 20},
	} {
		t.Run(name, func(t *testing.T) {
			inDen(t, func(o *service.Options) { o.Retention = c.def }, func(t *testing.T, d *den) {
				sb := d.create(t, carrel.CreateOptions{Timeout: 12 * time.Hour, Lifecycle: carrel.Lifecycle{Retention: c.rule}})
				all := d.take(t, sb.ID, carrel.CauseInterval, c.n)
				if got := d.timeline(t, sb.ID); !slices.Equal(got, all[c.n-c.want:]) {
					t.Errorf("%d are left, want the newest %d", len(got), c.want)
				}
				d.consistent(t)
			})
		})
	}
}

// TestRetentionSpares counts the snapshots that no rule removes.
func TestRetentionSpares(t *testing.T) {
	inDen(t, func(o *service.Options) { o.Retention = carrel.Retention{Last: 1} }, func(t *testing.T, d *den) {
		sb := d.create(t, carrel.CreateOptions{Timeout: 12 * time.Hour})
		asked := d.take(t, sb.ID, carrel.CauseRequest, 2)
		labelled := d.take(t, sb.ID, carrel.CauseInterval, 1)
		if _, err := d.UpdateSnapshot(t.Context(), labelled[0], carrel.SnapshotUpdate{Label: ptr("here")}); err != nil {
			t.Fatal(err)
		}
		named := d.take(t, sb.ID, carrel.CauseCommand, 1)
		if _, err := d.UpdateSnapshot(t.Context(), named[0], carrel.SnapshotUpdate{Names: &[]string{"n"}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // the order is by time
		forks, err := d.Fork(t.Context(), sb.ID, carrel.ForkOptions{Timeout: 12 * time.Hour})
		if err != nil || forks[0].Err != nil {
			t.Fatal(err, forks)
		}
		time.Sleep(time.Second)
		head := forks[0].Sandbox.Snapshot // where the fork can be rolled back to
		first := d.take(t, sb.ID, carrel.CauseInterval, 1)
		if _, err := d.Rollback(t.Context(), sb.ID, first[0], carrel.RollbackOptions{}); err != nil {
			t.Fatal(err)
		}
		last := d.take(t, sb.ID, carrel.CauseInterval, 3)
		want := slices.Concat(asked, labelled, named, []carrel.SnapshotID{head}, last[2:])
		if got := d.timeline(t, sb.ID); !slices.Equal(got, want) {
			t.Errorf("left %v, want %v", got, want)
		}
		// The rule also governs snapshots that are no longer Kept. A fork's snapshot goes with the
		// fork.
		if _, err := d.UpdateSnapshot(t.Context(), asked[0], carrel.SnapshotUpdate{Kept: ptr(false)}); err != nil {
			t.Fatal(err)
		}
		if err := d.Kill(t.Context(), forks[0].Sandbox.ID); err != nil {
			t.Fatal(err)
		}
		last = d.take(t, sb.ID, carrel.CauseInterval, 1)
		want = slices.Concat(asked[1:], labelled, named, last)
		if got := d.timeline(t, sb.ID); !slices.Equal(got, want) {
			t.Errorf("left %v, want %v", got, want)
		}
		d.consistent(t)
	})
}

// TestRetentionOfPauses keeps the snapshot of one pause, and not of every pause for idleness.
func TestRetentionOfPauses(t *testing.T) {
	inDen(t, func(o *service.Options) { o.Retention = carrel.Retention{Last: 3} }, func(t *testing.T, d *den) {
		sb := d.create(t, carrel.CreateOptions{Timeout: 12 * time.Hour})
		points := d.take(t, sb.ID, carrel.CauseInterval, 2)
		var newest, branch carrel.SnapshotID
		for i := range 5 {
			time.Sleep(time.Minute)
			got, err := d.Pause(t.Context(), sb.ID, carrel.PauseOptions{})
			if err != nil {
				t.Fatal(err)
			}
			newest = got.Snapshot
			if i == 1 { // a fork hangs on this one
				if forks, err := d.Fork(t.Context(), sb.ID, carrel.ForkOptions{Timeout: 12 * time.Hour}); err != nil || forks[0].Err != nil {
					t.Fatal(err, forks)
				} else {
					branch = newest
					time.Sleep(time.Minute)
					d.snap(t, forks[0].Sandbox.ID, carrel.CauseInterval)
				}
			}
			if _, _, err := d.Resume(t.Context(), sb.ID, carrel.ResumeOptions{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		want := slices.Concat(points, []carrel.SnapshotID{branch, newest})
		if got := d.timeline(t, sb.ID); !slices.Equal(got, want) {
			t.Errorf("left %v, want %v", got, want)
		}
		d.consistent(t)
	})
}

// TestEndOfSandbox shows that a sandbox's end removes its automatic snapshots, and that those in
// use go later.
func TestEndOfSandbox(t *testing.T) {
	inDen(t, nil, func(t *testing.T, d *den) {
		sb := d.create(t, carrel.CreateOptions{Timeout: 12 * time.Hour})
		asked := d.take(t, sb.ID, carrel.CauseRequest, 1)
		d.take(t, sb.ID, carrel.CauseInterval, 3)
		if _, err := d.Pause(t.Context(), sb.ID, carrel.PauseOptions{}); err != nil {
			t.Fatal(err)
		}
		forks, err := d.Fork(t.Context(), sb.ID, carrel.ForkOptions{Timeout: 12 * time.Hour})
		if err != nil || forks[0].Err != nil {
			t.Fatal(err, forks)
		}
		fork := forks[0].Sandbox
		if err := d.Kill(t.Context(), sb.ID); err != nil {
			t.Fatal(err)
		}
		page, err := d.ListSnapshots(t.Context(), carrel.SnapshotListOptions{Auto: true})
		if err != nil || len(page.Snapshots) != 1 || page.Snapshots[0].ID != asked[0] {
			t.Errorf("left: %+v, %v", page, err)
		}
		if got := d.timeline(t, fork.ID); !slices.Equal(got, asked) {
			t.Errorf("the fork's past: %v, want %v", got, asked)
		}
		if _, err := d.Create(t.Context(), carrel.CreateOptions{Template: string(asked[0])}); err != nil {
			t.Errorf("made from what is left: %v", err)
		}
		d.consistent(t)
	})
}

// TestRetentionByAge shows that the rules are applied now and then without a special cause.
func TestRetentionByAge(t *testing.T) {
	inDen(t, nil, func(t *testing.T, d *den) {
		sb := d.create(t, carrel.CreateOptions{Timeout: 12 * time.Hour, Lifecycle: carrel.Lifecycle{Retention: carrel.Retention{Last: 1, For: time.Hour}}})
		all := d.take(t, sb.ID, carrel.CauseInterval, 5)
		if got := d.timeline(t, sb.ID); !slices.Equal(got, all) {
			t.Fatalf("left %v", got)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if got := d.timeline(t, sb.ID); !slices.Equal(got, all[4:]) {
			t.Errorf("left %v after hours, want the newest", got)
		}
	})
}

// TestDropRaces hammers one timeline with all operations at once. Afterwards records, contents and
// sandboxes must agree, and no paused sandbox may have lost its snapshot.
func TestDropRaces(t *testing.T) {
	d := newDen(t, func(o *service.Options) { o.Retention = carrel.Retention{Last: 1} })
	var ids []carrel.ID
	for range 3 {
		ids = append(ids, d.create(t, carrel.CreateOptions{Timeout: time.Hour}).ID)
	}
	ok := func(what string, err error) {
		switch carrel.KindOf(err) {
		case "", carrel.NotFound, carrel.Conflict, carrel.Invalid, carrel.AlreadyExists:
		default:
			t.Errorf("%s: %v", what, err)
		}
	}
	ctx := context.Background()
	each := func(fn func(sn carrel.Snapshot)) {
		page, err := d.ListSnapshots(ctx, carrel.SnapshotListOptions{Auto: true, Limit: 20})
		ok("list", err)
		for _, sn := range page.Snapshots {
			fn(sn)
		}
	}
	var wg sync.WaitGroup
	const rounds = 15
	for _, id := range ids {
		wg.Go(func() {
			for range rounds {
				_, err := d.Snapshot(ctx, id, carrel.SnapshotOptions{Cause: carrel.CauseInterval})
				ok("snapshot", err)
				_, err = d.Pause(ctx, id, carrel.PauseOptions{})
				ok("pause", err)
				_, _, err = d.Resume(ctx, id, carrel.ResumeOptions{})
				ok("resume", err)
			}
		})
		wg.Go(func() {
			for range rounds {
				each(func(sn carrel.Snapshot) {
					if sn.Sandbox == id {
						_, err := d.Rollback(ctx, id, sn.ID, carrel.RollbackOptions{})
						ok("roll back", err)
					}
				})
			}
		})
	}
	wg.Go(func() {
		for range rounds {
			each(func(sn carrel.Snapshot) { ok("delete", d.DeleteSnapshot(ctx, string(sn.ID))) })
		}
	})
	wg.Go(func() {
		for range rounds {
			forks, err := d.Fork(ctx, ids[0], carrel.ForkOptions{Count: 2})
			ok("fork", err)
			for _, f := range forks {
				ok("fork", f.Err)
				if f.Err == nil {
					ok("kill", d.Kill(ctx, f.Sandbox.ID))
				}
			}
		}
	})
	wg.Go(func() {
		for range rounds {
			each(func(sn carrel.Snapshot) {
				_, err := d.UpdateSnapshot(ctx, sn.ID, carrel.SnapshotUpdate{Label: ptr("x")})
				ok("label", err)
				_, err = d.UpdateSnapshot(ctx, sn.ID, carrel.SnapshotUpdate{Label: ptr(""), Names: &[]string{"one"}})
				ok("name", err)
			})
			for _, id := range ids {
				_, err := d.Timeline(ctx, id)
				ok("timeline", err)
			}
		}
	})
	wg.Wait()
	for _, id := range ids {
		if _, _, err := d.Resume(ctx, id, carrel.ResumeOptions{}); err != nil {
			t.Errorf("what is paused can't be resumed: %v", err)
		}
		if sb, err := d.Get(ctx, id); err != nil || sb.State != carrel.Running {
			t.Errorf("sandbox %s is %s, %v", id, sb.State, err)
		}
	}
	for _, id := range ids {
		if err := d.Kill(ctx, id); err != nil {
			t.Error(err)
		}
	}
	d.consistent(t)
}
