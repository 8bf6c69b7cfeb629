package service_test

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/service"
)

// state returns the present state of a sandbox.
func (d *den) state(t *testing.T, id carrel.ID) carrel.State {
	t.Helper()
	synctest.Wait()
	sb, err := d.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return sb.State
}

// told counts events of a type.
func (d *den) told(t *testing.T, kind string) (n int) {
	t.Helper()
	for _, e := range d.events(t) {
		if e.Type == kind {
			n++
		}
	}
	return n
}

func idleAfter(d time.Duration) carrel.CreateOptions {
	return carrel.CreateOptions{Timeout: 12 * time.Hour, Lifecycle: carrel.Lifecycle{Idle: carrel.Idle{After: d}}}
}

func TestIdle(t *testing.T) {
	inDen(t, nil, func(t *testing.T, d *den) {
		sb := d.create(t, idleAfter(time.Minute))
		never := d.create(t, carrel.CreateOptions{Timeout: 12 * time.Hour})
		time.Sleep(50 * time.Second)
		if st := d.state(t, sb.ID); st != carrel.Running {
			t.Errorf("after 50 s it is %s", st)
		}
		time.Sleep(20 * time.Second)
		if st := d.state(t, sb.ID); st != carrel.Paused {
			t.Errorf("after 70 s it is %s", st)
		}
		got, _ := d.Get(t.Context(), sb.ID)
		if sn, err := d.GetSnapshot(t.Context(), string(got.Snapshot)); err != nil || sn.Cause != carrel.CauseIdle || !sn.Memory {
			t.Errorf("paused as %+v, %v", sn, err)
		}
		// The next request wakes the sandbox. After it, the sandbox is quiet again.
		_, done, err := d.Visit(t.Context(), sb.ID)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute) // one long request
		if st := d.state(t, sb.ID); st != carrel.Running {
			t.Errorf("with a request open it is %s", st)
		}
		done()
		time.Sleep(50 * time.Second)
		if st := d.state(t, sb.ID); st != carrel.Running {
			t.Errorf("50 s after the request it is %s", st)
		}
		time.Sleep(20 * time.Second)
		if st := d.state(t, sb.ID); st != carrel.Paused {
			t.Errorf("70 s after the request it is %s", st)
		}
		if st := d.state(t, never.ID); st != carrel.Running {
			t.Errorf("one that is not to be paused is %s", st)
		}
	})
}

func TestIdleFilesOnly(t *testing.T) {
	inDen(t, nil, func(t *testing.T, d *den) {
		o := idleAfter(5 * time.Second)
		o.Lifecycle.FilesOnly = true
		sb := d.create(t, o)
		time.Sleep(time.Minute)
		synctest.Wait()
		got, _ := d.Get(t.Context(), sb.ID)
		if sn, err := d.GetSnapshot(t.Context(), string(got.Snapshot)); err != nil || sn.Memory || got.State != carrel.Paused {
			t.Errorf("%s as %+v, %v", got.State, sn, err)
		}
	})
}

// TestBusy keeps a sandbox awake by one kind of activity at a time.
func TestBusy(t *testing.T) {
	burn := func(d *den, id carrel.ID, pct int) func() {
		return func() { d.moments.set(func() { d.moments.cpu[id] += time.Duration(pct) * 10 * time.Millisecond }) }
	}
	inside := func(d *den, a guest.Activity) {
		d.moments.set(func() { d.moments.activity = func() (guest.Activity, int) { return a, http.StatusOK } })
	}
	for name, c := range map[string]struct {
		idle  carrel.Idle
		setup func(d *den, id carrel.ID) (each func()) // called every second
		want  carrel.State
	}{
		"processor":            {carrel.Idle{}, func(d *den, id carrel.ID) func() { return burn(d, id, 8) }, carrel.Running},
		"little processor":     {carrel.Idle{}, func(d *den, id carrel.ID) func() { return burn(d, id, 3) }, carrel.Paused},
		"own threshold":        {carrel.Idle{CPUPct: 20}, func(d *den, id carrel.ID) func() { return burn(d, id, 15) }, carrel.Paused},
		"over own threshold":   {carrel.Idle{CPUPct: 20}, func(d *den, id carrel.ID) func() { return burn(d, id, 25) }, carrel.Running},
		"command":              {carrel.Idle{}, func(d *den, _ carrel.ID) func() { inside(d, guest.Activity{Processes: 1}); return nil }, carrel.Running},
		"command, ignored":     {carrel.Idle{IgnoreCommands: true}, func(d *den, _ carrel.ID) func() { inside(d, guest.Activity{Processes: 9}); return nil }, carrel.Paused},
		"stream":               {carrel.Idle{IgnoreCommands: true}, func(d *den, _ carrel.ID) func() { inside(d, guest.Activity{Streams: 1}); return nil }, carrel.Running},
		"processor, unignored": {carrel.Idle{IgnoreCommands: true}, func(d *den, id carrel.ID) func() { return burn(d, id, 99) }, carrel.Running},
		"many short requests": {carrel.Idle{}, func(d *den, id carrel.ID) func() {
			return func() {
				if _, done, err := d.Visit(t.Context(), id); err == nil {
					done()
				}
			}
		}, carrel.Running},
	} {
		t.Run(name, func(t *testing.T) {
			inDen(t, nil, func(t *testing.T, d *den) {
				c.idle.After = time.Minute
				sb := d.create(t, carrel.CreateOptions{Timeout: 12 * time.Hour, Lifecycle: carrel.Lifecycle{Idle: c.idle}})
				each := c.setup(d, sb.ID)
				for range 600 {
					time.Sleep(time.Second)
					if each != nil {
						each()
					}
				}
				if st := d.state(t, sb.ID); st != c.want {
					t.Errorf("it is %s, want %s", st, c.want)
				}
				d.moments.set(func() {
					if d.moments.asked > 120 {
						t.Errorf("the guest was asked %d times in 10 minutes", d.moments.asked)
					}
				})
			})
		})
	}
}

// TestIdleComesBetween sends a request while the service asks the guest for its activity.
func TestIdleComesBetween(t *testing.T) {
	inDen(t, nil, func(t *testing.T, d *den) {
		sb := d.create(t, idleAfter(time.Minute))
		var done func()
		d.moments.set(func() {
			d.moments.activity = func() (guest.Activity, int) {
				if done == nil {
					_, done, _ = d.Visit(t.Context(), sb.ID)
				}
				return guest.Activity{}, http.StatusOK
			}
		})
		time.Sleep(10 * time.Minute)
		if st := d.state(t, sb.ID); st != carrel.Running {
			t.Errorf("with a request that came between it is %s", st)
		}
		done()
		time.Sleep(2 * time.Minute)
		if st := d.state(t, sb.ID); st != carrel.Paused {
			t.Errorf("after it, it is %s", st)
		}
	})
}

// TestIdleFails counts the tries of a pause that fails. The waits grow, and each failure is an
// event.
func TestIdleFails(t *testing.T) {
	for name, broken := range map[string]func(d *den){
		"snapshot": func(d *den) {
			d.moments.snapErr = &carrel.Error{Kind: carrel.Exhausted, Err: errors.New("the disk is full")}
		},
		"guest": func(d *den) {
			d.moments.activity = func() (guest.Activity, int) { return guest.Activity{}, http.StatusInternalServerError }
		},
	} {
		t.Run(name, func(t *testing.T) {
			inDen(t, nil, func(t *testing.T, d *den) {
				d.moments.set(func() { broken(d) })
				sb := d.create(t, idleAfter(time.Minute))
				time.Sleep(time.Hour)
				if st := d.state(t, sb.ID); st != carrel.Running {
					t.Errorf("it is %s", st)
				}
				if n := d.told(t, "sandbox.pause_failed"); n < 5 || n > 12 {
					t.Errorf("it was tried %d times in an hour", n)
				}
				d.moments.set(func() { d.moments.snapErr, d.moments.activity = nil, nil })
				time.Sleep(20 * time.Minute)
				if st := d.state(t, sb.ID); st != carrel.Paused {
					t.Errorf("once it works it is %s", st)
				}
			})
		})
	}
}

func TestCheckpoints(t *testing.T) {
	inDen(t, nil, func(t *testing.T, d *den) {
		sb := d.create(t, carrel.CreateOptions{Timeout: 23 * time.Hour, Lifecycle: carrel.Lifecycle{
			Checkpoints: carrel.Checkpoints{Every: 10 * time.Minute, FilesOnly: true}, Retention: carrel.Retention{Last: 1000}}})
		count := func() int { return len(d.timeline(t, sb.ID)) }
		for range 60 { // an hour of work
			time.Sleep(time.Minute)
			d.moments.set(func() { d.moments.cpu[sb.ID] += time.Second })
		}
		n := count()
		if n < 5 || n > 8 {
			t.Errorf("%d snapshots in an hour", n)
		}
		tl, _ := d.Timeline(t.Context(), sb.ID)
		if sn := tl.Snapshots[0]; sn.Cause != carrel.CauseInterval || sn.Memory || sn.Kept || tl.Size != int64(10*n) {
			t.Errorf("took %+v, all of them %d bytes", sn, tl.Size)
		}
		time.Sleep(time.Hour) // of rest
		rest := count()
		if rest > n+1 {
			t.Errorf("%d snapshots of nothing", rest-n)
		}
		d.moments.set(func() { d.moments.disk[sb.ID]++ }) // something was written
		time.Sleep(time.Hour)
		if got := count(); got != rest+1 {
			t.Errorf("%d snapshots after one change", got-rest)
		}
		if _, done, err := d.Visit(t.Context(), sb.ID); err != nil {
			t.Error(err)
		} else {
			done()
		}
		time.Sleep(time.Hour)
		if got := count(); got != rest+2 {
			t.Errorf("%d snapshots after a request", got-rest-1)
		}
		// A paused sandbox is left alone, and its snapshot stays the same.
		got, err := d.Pause(t.Context(), sb.ID, carrel.PauseOptions{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if sn, err := d.GetSnapshot(t.Context(), string(got.Snapshot)); err != nil || sn.Kept || count() != rest+3 {
			t.Errorf("%+v, %v, %d snapshots", sn, err, count())
		}
		if _, _, err := d.Resume(t.Context(), sb.ID, carrel.ResumeOptions{Timeout: 20 * time.Hour}); err != nil {
			t.Fatal(err)
		}
		if _, err := d.SetLifecycle(t.Context(), sb.ID, carrel.Lifecycle{Retention: carrel.Retention{Last: 1000}}); err != nil {
			t.Fatal(err)
		}
		now := count()
		for range 60 {
			time.Sleep(time.Minute)
			d.moments.set(func() { d.moments.cpu[sb.ID] += time.Second })
		}
		if count() != now {
			t.Error("snapshots were taken after they were switched off")
		}
	})
}

// TestCheckpointsSpread makes many sandboxes at once. They must not all take their snapshots at
// once.
func TestCheckpointsSpread(t *testing.T) {
	inDen(t, nil, func(t *testing.T, d *den) {
		now, most, at := 0, 0, map[int64]int{}
		start := time.Now()
		d.moments.set(func() {
			d.moments.snapFn = func() {
				d.moments.set(func() {
					now++
					most = max(most, now)
					at[int64(time.Since(start)/time.Second)]++
				})
				time.Sleep(10 * time.Millisecond)
				d.moments.set(func() { now-- })
			}
		})
		for range 100 {
			d.create(t, carrel.CreateOptions{Timeout: time.Hour, Lifecycle: carrel.Lifecycle{Checkpoints: carrel.Checkpoints{Every: 100 * time.Second}}})
		}
		time.Sleep(3 * time.Minute)
		d.moments.set(func() {
			if most > 2 || d.moments.taken < 100 || len(at) < 30 {
				t.Errorf("%d snapshots in %d different seconds, %d at once", d.moments.taken, len(at), most)
			}
		})
	})
}

func TestCheckpointsFail(t *testing.T) {
	inDen(t, func(o *service.Options) { o.Retention = carrel.Retention{Last: 5} }, func(t *testing.T, d *den) {
		d.moments.set(func() { d.moments.snapErr = &carrel.Error{Kind: carrel.Exhausted, Err: errors.New("the disk is full")} })
		sb := d.create(t, carrel.CreateOptions{Timeout: 12 * time.Hour, Lifecycle: carrel.Lifecycle{Checkpoints: carrel.Checkpoints{Every: 10 * time.Second}}})
		time.Sleep(time.Hour)
		if n := d.told(t, "sandbox.checkpoint_failed"); n < 5 || n > 15 {
			t.Errorf("told %d times in an hour", n)
		}
		d.moments.set(func() { d.moments.snapErr = nil })
		time.Sleep(20 * time.Minute)
		if got := len(d.timeline(t, sb.ID)); got == 0 {
			t.Error("it never began again")
		}
		d.consistent(t)
	})
}

// TestNoTimeout shows that a sandbox without a timeout is paused when it is idle, and otherwise
// lives as long as it is used. The same is true of its forks.
func TestNoTimeout(t *testing.T) {
	inDen(t, nil, func(t *testing.T, d *den) {
		o := carrel.CreateOptions{NoTimeout: true, Lifecycle: carrel.Lifecycle{OnTimeout: carrel.ActionPause, Idle: carrel.Idle{After: 30 * time.Minute}}}
		sb := d.create(t, o)
		forks, err := d.Fork(t.Context(), sb.ID, carrel.ForkOptions{})
		if err != nil || forks[0].Err != nil {
			t.Fatal(forks, err)
		}
		all := []carrel.ID{sb.ID, forks[0].Sandbox.ID}
		leave := make([]func(), len(all))
		for i, id := range all {
			if _, leave[i], err = d.Visit(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		// An SDK that connects asks for at least five minutes. A longer end time stays.
		if _, _, err := d.Resume(t.Context(), sb.ID, carrel.ResumeOptions{Timeout: 5 * time.Minute}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Hour)
		for i, id := range all {
			if st := d.state(t, id); st != carrel.Running {
				t.Errorf("after 6 hours of use it is %s", st)
			}
			leave[i]()
		}
		time.Sleep(32 * time.Minute)
		for _, id := range all {
			if st := d.state(t, id); st != carrel.Paused {
				t.Errorf("after half an hour without use it is %s", st)
			}
		}
		_, done, err := d.Visit(t.Context(), sb.ID)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Hour)
		if st := d.state(t, sb.ID); st != carrel.Running {
			t.Errorf("woken, and 6 hours later it is %s", st)
		}
		done()
		o.Timeout = time.Minute
		if _, err := d.Create(t.Context(), o); carrel.KindOf(err) != carrel.Invalid {
			t.Errorf("a timeout and none: %v", err)
		}
	})
}
