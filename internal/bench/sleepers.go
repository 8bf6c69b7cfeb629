package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/state/sqlite"
)

// sleepersMost is the number of paused sandboxes in the fullest daemon.
const sleepersMost = 100_000

// sleepersBound is how many times longer a create or a page of a list may take than without paused
// sandboxes.
const sleepersBound = 1.1

// benchSleepers compares daemons with no, many and very many paused sandboxes, in turns. It writes
// the records into the state directly, because making that many takes an hour. A record is all that
// a daemon has of a paused sandbox.
func benchSleepers(ctx context.Context, _ *daemon, o Options) (_ []row, err error) {
	counts := []int{0, sleepersMost / 10, sleepersMost}
	if o.Quick {
		counts = []int{0, 1000, sleepersMost / 10}
	}
	o.Log = io.Discard
	var daemons []*daemon
	defer func() {
		for _, d := range daemons {
			d.abandon()
		}
	}()
	for _, n := range counts {
		d, err := startDaemon(ctx, o, "--warm", "0")
		if err != nil {
			return nil, err
		}
		daemons = append(daemons, d)
		if err := d.fill(ctx, n, o); err != nil {
			return nil, fmt.Errorf("%d paused sandboxes: %w", n, err)
		}
	}
	if err := sleep(ctx, quietTime); err != nil {
		return nil, err
	}
	creates, lists := make([][]float64, len(counts)), make([][]float64, len(counts))
	for range o.samples(200) {
		for i, d := range daemons {
			start := time.Now()
			sb, err := d.svc.Create(ctx, carrel.CreateOptions{Tier: carrel.Sim})
			if err != nil {
				return nil, err
			}
			creates[i] = append(creates[i], ms(time.Since(start)))
			if err := d.svc.Kill(ctx, sb.ID); err != nil {
				return nil, err
			}
			for range sleepersLists {
				start = time.Now()
				if _, err := d.svc.List(ctx, carrel.ListOptions{}); err != nil {
					return nil, err
				}
				lists[i] = append(lists[i], ms(time.Since(start)))
			}
		}
	}
	var rows []row
	for i, n := range counts {
		label := fmt.Sprintf("with %d paused: ", n+sleepersPage)
		rows = append(rows, summarise(label+"create (sim)", "ms", creates[i]), summarise(label+"list, one page", "ms", lists[i]))
		if i > 0 {
			rows = append(rows,
				fewer(label+"create ÷ with few", "×", []float64{middle(creates[i]) / middle(creates[0])}, sleepersBound).key(fmt.Sprintf("sleepers.create/%d", i)),
				fewer(label+"list ÷ with few", "×", []float64{middle(lists[i]) / middle(lists[0])}, sleepersBound).key(fmt.Sprintf("sleepers.list/%d", i)))
		}
	}
	return rows, nil
}

// sleepersPage is the least number of paused sandboxes in each daemon, so that all list pages of
// one size.
const sleepersPage = 100

// sleepersLists is how many pages are listed for each create, because a page takes a fraction of
// its time.
const sleepersLists = 5

// middle returns the median of samples.
func middle(samples []float64) float64 {
	return slices.Sorted(slices.Values(samples))[len(samples)/2]
}

// fill gives a daemon paused sandboxes, all from one snapshot of one sandbox, and starts it again.
func (d *daemon) fill(ctx context.Context, n int, o Options) error {
	sb, err := d.svc.Create(ctx, carrel.CreateOptions{Tier: carrel.Sim})
	if err != nil {
		return err
	}
	if _, err := d.svc.Pause(ctx, sb.ID, carrel.PauseOptions{}); err != nil {
		return err
	}
	d.end()
	st, err := sqlite.Open(ctx, filepath.Join(d.dir, "state.db"))
	if err != nil {
		return err
	}
	like, err := st.GetSandbox(ctx, sb.ID)
	for left := n + sleepersPage; err == nil && left > 0; {
		var c state.Change
		for range min(left, 1000) {
			r := like
			r.Sandbox.ID, r.Sandbox.Started = carrel.NewID(), like.Sandbox.Started.Add(-time.Duration(left)*time.Second)
			c.Put = append(c.Put, r)
			left--
		}
		err = st.Apply(ctx, c)
	}
	if cerr := st.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	again := *d.cmd
	d.cmd = command(again.Path, again.Args[1:], o.Log)
	if err := d.start(); err != nil {
		return err
	}
	return d.waitReady(ctx)
}

// end ends only the daemon's process.
func (d *daemon) end() {
	if d.svc != nil {
		_ = d.svc.Close()
		d.svc = nil
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	<-d.ended
	_ = os.Remove(filepath.Join(d.dir, "daemon.json"))
}

// abandon ends a daemon without running sandboxes and removes its files.
func (d *daemon) abandon() {
	d.end()
	_ = os.RemoveAll(d.dir)
}
