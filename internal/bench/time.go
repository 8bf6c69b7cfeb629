package bench

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carrel-dev/carrel"
)

// holder is a program that holds mb megabytes and prints a line when it has them. Neither
// compression nor zero pages make them smaller.
func holder(mb int) []string {
	return []string{"python3", "-c", fmt.Sprintf(
		"import random, time\nr = random.Random(1)\nb = [r.randbytes(1 << 20) for _ in range(%d)]\nopen('/tmp/held', 'w').close()\ntime.sleep(1e6)", mb)}
}

// holding makes a sandbox with a program that holds mb megabytes.
func (d *daemon) holding(ctx context.Context, mb int) (carrel.ID, carrel.Computer, error) {
	sb, err := d.svc.Create(ctx, carrel.CreateOptions{Template: "base", Tier: cmp.Or(d.tier, carrel.GVisor), Timeout: time.Hour,
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

// pauses measures pausing and resuming a sandbox many times.
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

// benchPause measures pausing and resuming, with little and with much memory.
func benchPause(ctx context.Context, s *session) ([]row, error) {
	d, err := s.coldDaemon(ctx)
	if err != nil {
		return nil, err
	}
	pause, resume, err := d.pauses(ctx, 50, s.o.samples(20))
	if err != nil {
		return nil, err
	}
	bigPause, bigResume, err := d.pauses(ctx, 1024, max(3, s.o.samples(5)))
	if err != nil {
		return nil, err
	}
	rows := []row{
		fewer("pause, 50 MB held", "ms", pause, 80).key("pause"),
		fewer("resume → first command's output, 50 MB held", "ms", resume, 110).key("resume"),
		summarise("pause, 1 GB held", "ms", bigPause).key("pause.big"),
		fewer("resume → first command's output, 1 GB held", "ms", bigResume, 400).key("resume.big"),
	}
	st, err := s.runsc(ctx)
	if err != nil {
		s.logf("stock runsc is left out: %v", err)
		return rows, nil
	}
	save, restore, err := st.moments(ctx, s.o.samples(10), 50)
	return append(rows,
		summarise("stock runsc checkpoint, 50 MB held", "ms", save),
		summarise("stock runsc restore and exec, 50 MB held", "ms", restore),
		atMost(ratio("  resume of ours ÷ that", resume, restore), 1.2).key("resume/runsc")), err
}

// benchFork measures how many forks of one sandbox answer per second.
func benchFork(ctx context.Context, d *daemon, o Options) ([]row, error) {
	r, err := d.forkRow(ctx, o, "")
	return []row{r.key("fork")}, err
}

// forkRow makes the row for that. Its name begins with label.
func (d *daemon) forkRow(ctx context.Context, o Options, label string) (row, error) {
	count, rounds := 50, 3
	if o.Quick {
		count, rounds = 10, 1
	}
	var rates []float64
	for range rounds {
		rate, err := d.forks(ctx, count)
		if err != nil {
			return row{}, err
		}
		rates = append(rates, rate)
	}
	return more(fmt.Sprintf("%sforks of one sandbox with 50 MB held, %d at once, all answering", label, count), "1/s", rates, 15), nil
}

// forks makes count forks of one sandbox at once, and each must answer. It returns how many per
// second.
func (d *daemon) forks(ctx context.Context, count int) (float64, error) {
	id, _, err := d.holding(ctx, 50)
	if err != nil {
		return 0, err
	}
	defer d.svc.Kill(ctx, id)
	start := time.Now()
	forks, err := d.svc.Fork(ctx, id, carrel.ForkOptions{Count: count, Timeout: time.Hour})
	if err != nil {
		return 0, err
	}
	var ids []carrel.ID
	defer func() { d.killAll(ctx, ids) }()
	for _, f := range forks {
		if f.Err != nil {
			return 0, f.Err
		}
		ids = append(ids, f.Sandbox.ID)
	}
	var g errgroup.Group
	for _, id := range ids {
		g.Go(func() error {
			c, err := d.svc.Computer(ctx, id)
			if err == nil {
				err = echo(ctx, c)
			}
			return err
		})
	}
	err = g.Wait()
	return float64(count) / time.Since(start).Seconds(), err
}

// benchRollback measures rolling back to a snapshot.
func benchRollback(ctx context.Context, d *daemon, o Options) ([]row, error) {
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

// benchTimeline measures the disk space of a timeline of 20 snapshots. The sandbox holds 200 MB and
// changes 5 MB between snapshots.
func benchTimeline(ctx context.Context, d *daemon, o Options) ([]row, error) {
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

// packed waits until a snapshot is packed, and returns the store's size then.
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
