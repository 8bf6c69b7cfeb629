package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// benchSoak creates five sandboxes a second for long, each of which answers a command
// and is killed after some seconds, and looks at what grows: a day of the same has
// seventy times as many as twenty minutes, so that a leak of one thing per thousand shows.
func benchSoak(ctx context.Context, s *session) ([]row, error) {
	const rate, life = 5, 2 * time.Second
	d, err := s.daemon(ctx)
	if err != nil {
		return nil, err
	}
	defer d.stop()
	stays, _, err := d.create(ctx) // shows where its cgroups are
	if err != nil {
		return nil, err
	}
	defer d.svc.Kill(ctx, stays)
	k := &soak{d: d}
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	start, look := time.Now(), time.Now()
	count := 0
	for time.Since(start) < s.o.For {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
		count++
		k.all.Go(func() { k.one(ctx, life) })
		if time.Since(look) >= max(s.o.For/100, 2*time.Second) {
			look = time.Now()
			k.look(s, time.Since(start), count)
		}
	}
	k.all.Wait()
	return k.rows(count, s.o.For), nil
}

// soak is one long run.
type soak struct {
	d   *daemon
	all sync.WaitGroup

	mu     sync.Mutex
	times  []float64
	failed []error

	looks []holdings
	rss   []float64
}

// one is one sandbox's life.
func (k *soak) one(ctx context.Context, life time.Duration) {
	start := time.Now()
	id, c, err := k.d.create(ctx)
	if err == nil {
		err = echo(ctx, c)
	}
	took := ms(time.Since(start))
	if err == nil {
		_ = sleep(ctx, life)
	}
	if id != "" {
		if end := k.d.svc.Kill(context.WithoutCancel(ctx), id); err == nil {
			err = end
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.failed = append(k.failed, err)
		return
	}
	k.times = append(k.times, took)
}

// look counts what is held.
func (k *soak) look(s *session, at time.Duration, count int) {
	rss := float64(residentMemory(k.d.cmd.Process.Pid)) / (1 << 20)
	k.looks, k.rss = append(k.looks, k.d.holdings()), append(k.rss, rss)
	k.mu.Lock()
	recent := k.times[max(0, len(k.times)-50):]
	latency := median(slices.Clone(recent))
	k.mu.Unlock()
	if len(recent) > 0 {
		s.results.Points = append(s.results.Points, point{"soak.create", float64(count), latency})
	}
	s.results.Points = append(s.results.Points, point{"soak.daemon", float64(count), rss})
	if len(k.looks)%10 == 0 {
		s.logf("soak: %s, %d creates, daemon %.0f MiB, %v", at.Round(time.Second), count, rss, k.looks[len(k.looks)-1])
	}
}

// rows compares the last quarter of the run with the second: in the first, caches fill.
func (k *soak) rows(count int, span time.Duration) []row {
	rows := []row{
		summarise(fmt.Sprintf("%d creates in %s: create → first command's output", count, span), "ms", k.times).key("soak.create"),
		atMost(single("  failed", "", float64(len(k.failed))), 0).key("soak.failed"),
	}
	if len(k.failed) > 0 {
		rows[1].Name += ", the first: " + k.failed[0].Error()
	}
	quarter := len(k.looks) / 4
	if quarter == 0 {
		return rows
	}
	if n := len(k.times) / 4; n > 0 {
		rows = append(rows, atMost(ratio("  last quarter ÷ second", k.times[len(k.times)-n:], k.times[n:2*n]), 1.15).key("soak.drift"))
	}
	quarters := func(values []float64) (second, last float64) {
		return median(values[quarter : 2*quarter]), median(values[len(values)-quarter:])
	}
	second, last := quarters(k.rss)
	// A collector lets a heap swing by some per cent.
	rows = append(rows, single("  the daemon's memory, last quarter", "MiB", last), atMost(single("  the daemon's memory: last quarter − second", "MiB", last-second), max(8, second/10)).key("soak.memory"))
	for _, kind := range k.looks[0].kinds() {
		var values []float64
		for _, l := range k.looks {
			values = append(values, float64(l[kind]))
		}
		second, last := quarters(values)
		r := single(fmt.Sprintf("  %s: last quarter − second", kind), "", last-second).key("soak." + kind)
		if kind == heldFiles {
			r.Name += " (records of what happened are kept)"
		}
		// As many live at one moment as at another, give or take two.
		rows = append(rows, atMost(r, 2*perSandbox(kind)))
	}
	return rows
}

// perSandbox is about how many of a kind one living sandbox has.
func perSandbox(kind string) float64 {
	switch kind {
	case heldProcesses, heldFiles, heldCgroups, heldDescriptors:
		return 6
	}
	return 2
}
