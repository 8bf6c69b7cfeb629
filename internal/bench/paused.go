package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carrel-dev/carrel"
)

// benchPaused keeps many sandboxes paused and measures their effect on the daemon. The sandboxes
// are simulated, because only the daemon is measured: it stores the same for a paused sandbox in
// every tier.
func benchPaused(ctx context.Context, d *daemon, o Options) ([]row, error) {
	n := o.Paused
	if o.Quick {
		n = min(n, 200)
	}
	id, c, err := d.create(ctx)
	if err != nil {
		return nil, err
	}
	defer d.svc.Kill(ctx, id)
	feel := func() (execs, creates, lists []float64, err error) {
		for range o.samples(30) {
			start := time.Now()
			if err := echo(ctx, c); err != nil {
				return nil, nil, nil, err
			}
			execs = append(execs, ms(time.Since(start)))
			start = time.Now()
			sb, err := d.svc.Create(ctx, carrel.CreateOptions{Tier: carrel.Sim})
			if err != nil {
				return nil, nil, nil, err
			}
			creates = append(creates, ms(time.Since(start)))
			start = time.Now()
			if _, err := d.svc.List(ctx, carrel.ListOptions{}); err != nil {
				return nil, nil, nil, err
			}
			lists = append(lists, ms(time.Since(start)))
			if err := d.svc.Kill(ctx, sb.ID); err != nil {
				return nil, nil, nil, err
			}
		}
		return execs, creates, lists, nil
	}
	execs0, creates0, lists0, err := feel()
	if err != nil {
		return nil, err
	}
	if err := sleep(ctx, quietTime); err != nil {
		return nil, err
	}
	memory := ownMemory(d.cmd.Process.Pid)
	var mu sync.Mutex
	var ids []carrel.ID
	var g errgroup.Group
	g.SetLimit(16)
	start := time.Now()
	for range n {
		g.Go(func() error {
			sb, err := d.svc.Create(ctx, carrel.CreateOptions{Tier: carrel.Sim, Lifecycle: carrel.Lifecycle{AutoResume: true}})
			if err != nil {
				return err
			}
			if _, err := d.svc.Pause(ctx, sb.ID, carrel.PauseOptions{}); err != nil {
				return err
			}
			mu.Lock()
			ids = append(ids, sb.ID)
			mu.Unlock()
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("after %d: %w", len(ids), err)
	}
	rate := float64(n) / time.Since(start).Seconds()
	if err := sleep(ctx, quietTime); err != nil { // until the newest are packed, and the memory for that is freed
		return nil, err
	}
	each := float64(ownMemory(d.cmd.Process.Pid)-memory) / float64(n) / 1024
	execs, creates, lists, err := feel()
	if err != nil {
		return nil, err
	}
	var wake []float64
	for _, id := range ids[:min(len(ids), o.samples(30))] {
		start := time.Now()
		c, err := d.svc.Computer(ctx, id)
		if err != nil {
			return nil, err
		}
		if _, err := c.Run(ctx, carrel.Command{Shell: "echo awake"}); err != nil {
			return nil, err
		}
		wake = append(wake, ms(time.Since(start)))
	}
	var failed atomic.Int32
	var k errgroup.Group
	k.SetLimit(16)
	for _, id := range ids {
		k.Go(func() error {
			if d.svc.Kill(ctx, id) != nil {
				failed.Add(1)
			}
			return nil
		})
	}
	_ = k.Wait()
	if failed.Load() > 0 {
		return nil, fmt.Errorf("%d paused sandboxes could not be killed", failed.Load())
	}
	label := fmt.Sprintf("with %d paused sandboxes: ", n)
	return []row{
		summarise(label+"made and paused", "1/s", []float64{rate}),
		summarise(label+"daemon's memory for each", "KiB", []float64{each}),
		summarise("exec, without any", "ms", execs0), summarise(label+"exec", "ms", execs),
		summarise("create (sim), without any", "ms", creates0), summarise(label+"create (sim)", "ms", creates),
		summarise("list, without any", "ms", lists0), summarise(label+"list, a page of 100", "ms", lists),
		summarise(label+"a request wakes one (sim)", "ms", wake),
	}, nil
}
