package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
)

// holder is a program that holds so many megabytes that no compression or zero page
// makes smaller, and says when it does.
func holder(mb int) []string {
	return []string{"python3", "-c", fmt.Sprintf(
		"import random, time\nr = random.Random(1)\nb = [r.randbytes(1 << 20) for _ in range(%d)]\nopen('/tmp/held', 'w').close()\ntime.sleep(1e6)", mb)}
}

// holding makes a sandbox with a program that holds so many megabytes.
func (d *daemon) holding(ctx context.Context, mb int) (carrel.ID, carrel.Computer, error) {
	sb, err := d.svc.Create(ctx, carrel.CreateOptions{Template: "base", Tier: carrel.GVisor, Timeout: time.Hour,
		Limits: carrel.Limits{MemoryMB: 512 + 2*mb}})
	if err != nil {
		return "", nil, err
	}
	c, err := d.svc.Computer(ctx, sb.ID)
	if err != nil {
		return sb.ID, nil, err
	}
	p, err := c.Start(ctx, carrel.Command{Args: holder(mb)})
	if err != nil {
		return sb.ID, nil, err
	}
	_ = p.Close()
	return sb.ID, c, bash(ctx, c, "for i in $(seq 6000); do [ -e /tmp/held ] && exit 0; sleep 0.01; done; exit 1")
}

// pauses measures pausing and resuming a sandbox again and again.
func (d *daemon) pauses(ctx context.Context, mb, n int) (pause, resume []float64, err error) {
	id, c, err := d.holding(ctx, mb)
	if err != nil {
		return nil, nil, err
	}
	defer d.svc.Kill(ctx, id)
	for i := range n + 1 {
		start := time.Now()
		if _, err := d.svc.Pause(ctx, id, carrel.PauseOptions{}); err != nil {
			return nil, nil, err
		}
		paused := time.Now()
		if _, _, err := d.svc.Resume(ctx, id, carrel.ResumeOptions{}); err != nil {
			return nil, nil, err
		}
		if err := echo(ctx, c); err != nil {
			return nil, nil, err
		}
		if i > 0 {
			pause, resume = append(pause, ms(paused.Sub(start))), append(resume, ms(time.Since(paused)))
		}
	}
	return pause, resume, nil
}

// benchTime measures what can be done with a sandbox's time.
func benchTime(ctx context.Context, d *daemon, o options) ([]row, error) {
	pause, resume, err := d.pauses(ctx, 50, o.samples(20))
	if err != nil {
		return nil, err
	}
	bigPause, bigResume, err := d.pauses(ctx, 1024, max(3, o.samples(5)))
	if err != nil {
		return nil, err
	}
	rows := []row{
		fewer("pause, 50 MB held", "ms", pause, 80),
		fewer("resume → first command's output, 50 MB held", "ms", resume, 110),
		summarise("pause, 1 GB held", "ms", bigPause),
		fewer("resume → first command's output, 1 GB held", "ms", bigResume, 400),
	}
	for _, more := range []func(context.Context, *daemon, options) ([]row, error){benchFork, benchRollback, benchTimeline} {
		got, err := more(ctx, d, o)
		if err != nil {
			return nil, err
		}
		rows = append(rows, got...)
	}
	if os.Getuid() == 0 {
		stock, err := stockTime(ctx, d, o)
		if err != nil {
			return nil, err
		}
		ours := summarise("", "", resume).Median
		rows = append(rows, stock...)
		rows = append(rows, fewer("resume of ours ÷ restore and exec of stock runsc, 50 MB held", "×",
			[]float64{ours / stock[1].Median}, 1.2))
	}
	return rows, nil
}

// benchFork measures how many forks of one snapshot answer in a second.
func benchFork(ctx context.Context, d *daemon, o options) ([]row, error) {
	id, _, err := d.holding(ctx, 50)
	if err != nil {
		return nil, err
	}
	defer d.svc.Kill(ctx, id)
	count := 50
	if o.quick {
		count = 10
	}
	start := time.Now()
	forks, err := d.svc.Fork(ctx, id, carrel.ForkOptions{Count: count, Timeout: time.Hour})
	if err != nil {
		return nil, err
	}
	made := time.Since(start)
	defer func() {
		for _, f := range forks {
			if f.Err == nil {
				_ = d.svc.Kill(ctx, f.Sandbox.ID)
			}
		}
	}()
	var wg sync.WaitGroup
	errs := make([]error, len(forks))
	for i, f := range forks {
		if f.Err != nil {
			return nil, f.Err
		}
		wg.Go(func() {
			c, err := d.svc.Computer(ctx, f.Sandbox.ID)
			if err == nil {
				err = echo(ctx, c)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return []row{
		more(fmt.Sprintf("forks of one sandbox with 50 MB held, %d at once, all answering", count), "1/s",
			[]float64{float64(count) / time.Since(start).Seconds()}, 15),
		summarise("  of which until fork returned", "ms", []float64{ms(made)}),
	}, nil
}

// benchRollback measures going back to a snapshot.
func benchRollback(ctx context.Context, d *daemon, o options) ([]row, error) {
	id, c, err := d.holding(ctx, 50)
	if err != nil {
		return nil, err
	}
	defer d.svc.Kill(ctx, id)
	sn, err := d.svc.Snapshot(ctx, id, carrel.SnapshotOptions{})
	if err != nil {
		return nil, err
	}
	defer d.svc.DeleteSnapshot(ctx, string(sn.ID))
	var times []float64
	for i := range o.samples(20) + 1 {
		start := time.Now()
		if _, err := d.svc.Rollback(ctx, id, sn.ID, carrel.RollbackOptions{}); err != nil {
			return nil, err
		}
		if i > 0 {
			times = append(times, ms(time.Since(start)))
		}
		if err := echo(ctx, c); err != nil {
			return nil, err
		}
	}
	return []row{fewer("rollback, 50 MB held", "ms", times, 150)}, nil
}

// benchTimeline measures what a timeline of 20 snapshots costs on the disk, of a
// sandbox that holds 200 MB and changes 5 between them.
func benchTimeline(ctx context.Context, d *daemon, o options) ([]row, error) {
	id, c, err := d.holding(ctx, 200)
	if err != nil {
		return nil, err
	}
	var taken []carrel.SnapshotID
	defer func() {
		_ = d.svc.Kill(ctx, id)
		for _, sn := range taken {
			_ = d.svc.DeleteSnapshot(ctx, string(sn))
		}
	}()
	before, err := diskUsage(filepath.Join(d.dir, "snapshots"))
	if err != nil {
		return nil, err
	}
	var first int64
	var times []float64
	for i := range 20 {
		if err := bash(ctx, c, "head -c 5000000 /dev/urandom > /home/user/changing"); err != nil {
			return nil, err
		}
		start := time.Now()
		sn, err := d.svc.Snapshot(ctx, id, carrel.SnapshotOptions{})
		if err != nil {
			return nil, err
		}
		times = append(times, ms(time.Since(start)))
		taken = append(taken, sn.ID)
		if i == 0 {
			if first, err = d.packed(ctx, sn.ID); err != nil {
				return nil, err
			}
		}
	}
	if _, err := d.packed(ctx, taken[len(taken)-1]); err != nil {
		return nil, err
	}
	whole, err := diskUsage(filepath.Join(d.dir, "snapshots"))
	if err != nil {
		return nil, err
	}
	return []row{
		summarise("snapshot of a running sandbox, 200 MB held", "ms", times),
		fewer("disk for 20 snapshots, 5 MB changed between them ÷ disk for the first", "×", []float64{float64(whole-before) / float64(first-before)}, 2),
	}, nil
}

// packed waits until a snapshot is packed, and returns what the store then takes.
func (d *daemon) packed(ctx context.Context, id carrel.SnapshotID) (int64, error) {
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		sn, err := d.svc.GetSnapshot(ctx, string(id))
		if err != nil {
			return 0, err
		}
		if sn.New >= 0 {
			return diskUsage(filepath.Join(d.dir, "snapshots"))
		}
		if time.Now().After(end) {
			return 0, fmt.Errorf("snapshot %s is not packed after two minutes", id)
		}
	}
}
