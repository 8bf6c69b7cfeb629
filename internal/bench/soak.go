package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// benchSoak creates five sandboxes a second for a long time. Each answers a command and is killed
// after some seconds. The measurement checks what grows. A day has seventy times as many sandboxes
// as twenty minutes, so a leak of one thing per thousand shows.
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
	k := &soak{d: d, s: s, rate: rate, life: life, start: time.Now()}
	// The first tenth fills caches.
	for _, span := range []time.Duration{s.o.For / 10, s.o.For - s.o.For/10} {
		if err := k.run(ctx, span); err != nil {
			return nil, err
		}
	}
	return k.rows(s.o.For), nil
}

// run creates for this time, then lets all sandboxes end and counts the holdings at rest. Work that
// waits on a slow machine is no leak.
func (k *soak) run(ctx context.Context, span time.Duration) error {
	tick := time.NewTicker(time.Second / time.Duration(k.rate))
	defer tick.Stop()
	for start, look := time.Now(), time.Now(); time.Since(start) < span; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		k.count++
		k.all.Go(func() { k.one(ctx, k.life) })
		if time.Since(look) >= max(span/100, 2*time.Second) {
			look = time.Now()
			k.look()
		}
	}
	k.all.Wait()
	if len(k.rest) > 0 {
		if n, what := k.d.settled(ctx, k.rest[0]); n > 0 {
			k.s.logf("soak: left behind: %s", what)
		}
	}
	if err := sleep(ctx, quietTime); err != nil {
		return err
	}
	k.rest, k.resting = append(k.rest, k.d.holdings()), append(k.resting, k.memory())
	return nil
}

// quietTime is how long the daemon gets no requests before its holdings at rest are counted. It
// frees memory after some quiet seconds.
const quietTime = 15 * time.Second

// soak is one long run.
type soak struct {
	d     *daemon
	s     *session
	rate  int
	life  time.Duration
	start time.Time
	count int
	all   sync.WaitGroup

	mu     sync.Mutex
	times  []float64
	failed []error

	looks   int
	rest    []holdings // at rest, after each part of the run
	resting []float64  // the daemon's memory then, MiB
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

// memory returns the daemon's own memory, in MiB.
func (k *soak) memory() float64 { return float64(ownMemory(k.d.cmd.Process.Pid)) / (1 << 20) }

// look stores points for the plots.
func (k *soak) look() {
	memory := k.memory()
	k.mu.Lock()
	recent := slices.Clone(k.times[max(0, len(k.times)-50):])
	k.mu.Unlock()
	if len(recent) > 0 {
		k.s.results.Points = append(k.s.results.Points, point{"soak.create", float64(k.count), median(recent)})
	}
	k.s.results.Points = append(k.s.results.Points, point{"soak.daemon", float64(k.count), memory})
	if k.looks++; k.looks%10 == 0 {
		k.s.logf("soak: %s, %d creates, daemon %.0f MiB", time.Since(k.start).Round(time.Second), k.count, memory)
	}
}

// rows compares the holdings at rest after the whole run with those after its first tenth.
func (k *soak) rows(span time.Duration) []row {
	failed := atMost(single("  failed", "", float64(len(k.failed))), 0).key("soak.failed")
	if len(k.failed) > 0 {
		failed.Name += ", the first: " + k.failed[0].Error()
	}
	rows := []row{summarise(fmt.Sprintf("%d creates in %s: create → first command's output", k.count, span), "ms", k.times).key("soak.create"), failed}
	if n := len(k.times) / 4; n > 0 {
		rows = append(rows, atMost(ratio("  last quarter ÷ second", k.times[len(k.times)-n:], k.times[n:2*n]), 1.15).key("soak.drift"))
	}
	before, after := k.resting[0], k.resting[1]
	rows = append(rows, single("  the daemon's memory at rest, without its binary's pages", "MiB", after),
		// With a collector, the size of a heap varies.
		atMost(single("    more than after the first tenth", "MiB", after-before), 8).key("soak.memory"))
	for _, kind := range k.rest[0].kinds() {
		r := single(fmt.Sprintf("  more %s at rest than after the first tenth", kind), "", float64(k.rest[1][kind]-k.rest[0][kind])).key("soak." + kind)
		rows = append(rows, atMost(r, spare(kind)))
	}
	return rows
}

// spare returns how many more of a kind may be held for a limited time: open connections, files of
// the database.
func spare(kind string) float64 {
	switch kind {
	case heldDescriptors:
		return 64 // connections to clients stay open for a while
	case heldFiles:
		return 6
	}
	return 0
}
