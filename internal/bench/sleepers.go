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

// sleepersMost is how many paused sandboxes the fullest daemon has.
const sleepersMost = 100_000

// sleepersBound is how much longer than without any a create or a page of a list may take.
const sleepersBound = 1.1

// benchSleepers compares daemons that have none, many and very many paused sandboxes, in turns. The records are
// written into the state directly: making so many takes an hour, and what a daemon has of one is its record.
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

// sleepersPage is how many paused ones each of the daemons has at least, so that all list pages of one size.
const sleepersPage = 100

// sleepersLists is how many pages are listed for each create: they take a fraction of its time.
const sleepersLists = 5

// middle is the median of samples.
func middle(samples []float64) float64 {
	return slices.Sorted(slices.Values(samples))[len(samples)/2]
}

// fill gives a daemon paused sandboxes, all at one moment of one, and starts it again.
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

// end ends the daemon's process alone.
func (d *daemon) end() {
	if d.svc != nil {
		_ = d.svc.Close()
		d.svc = nil
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	<-d.ended
	_ = os.Remove(filepath.Join(d.dir, "daemon.json"))
}

// abandon ends a daemon that has nothing running and removes what it has.
func (d *daemon) abandon() {
	d.end()
	_ = os.RemoveAll(d.dir)
}
