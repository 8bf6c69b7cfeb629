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

// benchBurst measures 50 creates at once: from a pool of 50, and cold.
func benchBurst(ctx context.Context, s *session) ([]row, error) {
	n, rounds := 50, 3
	if s.o.Quick {
		n, rounds = 20, 1
	}
	d, err := s.coldDaemon(ctx)
	if err != nil {
		return nil, err
	}
	var rows []row
	report := func(what, key string, d *daemon, before func() error) error {
		var last, lastOutput, all []float64
		for range rounds {
			if err := before(); err != nil {
				return err
			}
			created, answered, err := d.burst(ctx, n)
			if err != nil {
				return err
			}
			last, lastOutput, all = append(last, tail(created, 100)), append(lastOutput, tail(answered, 100)), append(all, created...)
		}
		first := summarise(fmt.Sprintf("%d creates at once, %s: the last one answers after", n, what), "ms", last).key(key)
		if key == "burst.warm" {
			first = atMost(first, 250)
		}
		rows = append(rows, first,
			summarise("  each one answers after", "ms", all).key(key+".each"),
			summarise("  the last one's first command has answered after", "ms", lastOutput).key(key+".output"))
		return nil
	}
	w, err := s.warmDaemon(ctx, n)
	if err != nil {
		s.logf("the burst from a pool is left out: %v", err)
	} else {
		defer w.stop()
		if err := report(fmt.Sprintf("from a pool of %d", n), "burst.warm", w, func() error { return w.waitWarm(ctx, n) }); err != nil {
			return rows, err
		}
	}
	return rows, report("cold", "burst.cold", d, func() error { return nil })
}

// burst creates n sandboxes at once, and each answers a command. The times begin at the common
// start.
func (d *daemon) burst(ctx context.Context, n int) (created, answered []float64, err error) {
	created, answered = make([]float64, n), make([]float64, n)
	ids := make([]carrel.ID, n)
	errs := make([]error, n)
	var all sync.WaitGroup
	start := time.Now()
	for i := range n {
		all.Go(func() {
			var c carrel.Computer
			ids[i], c, errs[i] = d.create(ctx)
			created[i] = ms(time.Since(start))
			if errs[i] == nil {
				errs[i] = echo(ctx, c)
			}
			answered[i] = ms(time.Since(start))
		})
	}
	all.Wait()
	d.killAll(ctx, ids)
	for _, err := range errs {
		if err != nil {
			return nil, nil, err
		}
	}
	return created, answered, nil
}

// killAll ends sandboxes, a few at a time. It ignores the empty ID.
func (d *daemon) killAll(ctx context.Context, ids []carrel.ID) {
	var g errgroup.Group
	g.SetLimit(4)
	for _, id := range ids {
		if id != "" {
			g.Go(func() error { _ = d.svc.Kill(context.WithoutCancel(ctx), id); return nil })
		}
	}
	_ = g.Wait()
}

// benchSustained creates many sandboxes, a few at a time. Each answers one command and is killed.
// It measures how many per second, and whether the last are as fast as the first.
func benchSustained(ctx context.Context, s *session) ([]row, error) {
	d, err := s.coldDaemon(ctx)
	if err != nil {
		return nil, err
	}
	n := s.o.Chain
	if s.o.Quick {
		n = min(n, 100)
	}
	const clients = 4 // keeps two cores busy while one client waits
	times := make([]float64, n)
	var next atomic.Int64
	g, gctx := errgroup.WithContext(ctx)
	cpu, start := d.cpu(), time.Now()
	for range clients {
		r := d.starting("cold", base(carrel.GVisor), nil)
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				took, err := r.once(gctx)
				if err != nil {
					return fmt.Errorf("create %d: %w", i+1, err)
				}
				times[i] = ms(took)
			}
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	whole := time.Since(start)
	own, children := d.cpu().since(cpu)
	window := max(10, n/20)
	for at := 0; at+window <= n; at += window {
		s.results.Points = append(s.results.Points, point{"sustained", float64(at + window/2), median(times[at : at+window])})
	}
	early, late := times[min(10, n-window):min(10, n-window)+window], times[n-window:]
	r := ratio(fmt.Sprintf("  the last %d ÷ the %d after the 10th", window, window), late, early).key("sustained.drift")
	return []row{
		atLeast(single(fmt.Sprintf("%d cold creates, %d at a time, each with a command and killed", n, clients), "1/s", float64(n)/whole.Seconds()), 25).key("sustained"),
		summarise("  create → first command's output", "ms", times).key("sustained.each"),
		// On a machine with other work, medians of this many samples differ by some per cent.
		atMost(r, 1.15),
		single("  processor time of the daemon, each", "ms", ms(own)/float64(n)),
		single("  processor time of what it started and ended, each", "ms", ms(children)/float64(n)),
	}, nil
}
