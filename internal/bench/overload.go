package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
)

// benchOverload requests ten times as many creates as can be served, for a while, from clients that
// do not wait for each other. The daemon must serve as many as before, refuse the others soon, and
// keep nothing of those.
func benchOverload(ctx context.Context, s *session) ([]row, error) {
	d, err := s.daemon(ctx) // a separate one, because leftovers are counted
	if err != nil {
		return nil, err
	}
	defer d.stop()
	span := 15 * time.Second
	if s.o.Quick {
		span = 4 * time.Second
	}
	peak, err := d.capacity(ctx, span/2)
	if err != nil {
		return nil, err
	}
	stays, _, err := d.create(ctx) // shows where its cgroups are
	if err != nil {
		return nil, err
	}
	defer d.svc.Kill(ctx, stays)
	before := d.holdings()
	r := &offered{d: d, deadline: 10 * time.Second}
	interval := time.Duration(float64(time.Second) / (10 * peak))
	tick := time.NewTicker(interval)
	defer tick.Stop()
	start := time.Now()
	for time.Since(start) < span {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
			r.all.Go(func() { r.one(ctx) })
		}
	}
	offering := time.Since(start)
	r.all.Wait()
	whole := time.Since(start)
	left, what := d.settled(ctx, before)
	total := len(r.accepted) + len(r.refused) + len(r.timedOut) + len(r.failed)
	for _, err := range r.failed[:min(3, len(r.failed))] {
		s.logf("overload: a create failed: %v", err)
	}
	if left > 0 {
		s.logf("overload: left behind: %s", what)
	}
	rows := []row{
		single("creates that can be served, from 4 clients", "1/s", peak),
		single("creates offered", "1/s", float64(total)/offering.Seconds()),
		atLeast(single("  served of them ÷ what can be served", "×", float64(len(r.accepted))/whole.Seconds()/peak), 0.8).key("overload.goodput"),
		summarise("  accepted: create answered", "ms", r.accepted).key("overload.accepted"),
		single("  refused with 429 or 503", "%", 100*float64(len(r.refused))/float64(total)),
	}
	if len(r.refused) > 0 {
		rows = append(rows, summarise("  refused after", "ms", r.refused).key("overload.refused"))
	}
	return append(rows,
		single(fmt.Sprintf("  given up after %s", r.deadline), "%", 100*float64(len(r.timedOut))/float64(total)),
		atMost(single("  failed otherwise", "", float64(len(r.failed))), 0),
		atMost(single("  processes, directories, cgroups left behind", "", float64(left)), 0).key("overload.left")), nil
}

// capacity returns how many creates per second four clients get that wait for their answers.
func (d *daemon) capacity(ctx context.Context, span time.Duration) (float64, error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	var first error
	count, start := 0, time.Now()
	for range 4 {
		all.Go(func() {
			for time.Since(start) < span {
				id, _, err := d.create(ctx)
				if err == nil {
					err = d.svc.Kill(ctx, id)
				}
				mu.Lock()
				if count++; err != nil {
					first = err
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return float64(count) / time.Since(start).Seconds(), first
}

// offered counts the results of the creates in an overload.
type offered struct {
	d        *daemon
	deadline time.Duration
	all      sync.WaitGroup

	mu                          sync.Mutex
	accepted, refused, timedOut []float64
	failed                      []error
}

// one makes a create with a deadline, and kills the sandbox if it was accepted.
func (r *offered) one(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, r.deadline)
	defer cancel()
	start := time.Now()
	sb, err := r.d.svc.Create(limited, base(carrel.GVisor))
	took := ms(time.Since(start))
	late := limited.Err() != nil
	if err == nil {
		_ = r.d.svc.Kill(ctx, sb.ID)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.accepted = append(r.accepted, took)
	case late || errors.Is(err, context.DeadlineExceeded) || carrel.KindOf(err) == carrel.TimedOut:
		r.timedOut = append(r.timedOut, took)
	case carrel.KindOf(err) == carrel.Exhausted, carrel.KindOf(err) == carrel.Unavailable:
		r.refused = append(r.refused, took)
	default:
		r.failed = append(r.failed, err)
	}
}
