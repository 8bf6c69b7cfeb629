package admission

import (
	"context"
	"sync"
	"testing"
	"time"
)

// machine is a simulated one with two processors, shared by all that are at work. Past
// sixteen they cost each other more than their share: caches, locks, memory. It lives in
// a synctest bubble, so its seconds take none.
type machine struct {
	mu   sync.Mutex
	work int
	most int
}

const (
	processors = 2
	demand     = 40 * time.Millisecond // of one processor, for each start
	quantum    = 2 * time.Millisecond
	capacity   = float64(processors) / 0.040 // starts a second
)

// run does one start, or what of it can be done until ctx ends.
func (m *machine) run(ctx context.Context) error {
	m.add(1)
	defer m.add(-1)
	for left := float64(demand); left > 0; {
		speed := m.speed()
		step := max(quantum, time.Duration(left/speed/8)) // fewer steps where each does little
		select {
		case <-time.After(step):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		left -= float64(step) * speed
	}
	return nil
}

// speed is how much of a processor each has.
func (m *machine) speed() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	whole := float64(processors)
	if over := m.work - 16; over > 0 {
		whole /= 1 + float64(over)/50
	}
	return min(1, whole/float64(max(m.work, 1)))
}

func (m *machine) add(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.work += n
	m.most = max(m.most, m.work)
}

// tally is what came of one caller's requests.
type tally struct {
	mu                    sync.Mutex
	good, refused, gaveUp int
	waits                 time.Duration // of the good ones, together
}

// flood sends requests at a rate for a while, each from a client with some patience, and
// waits for all of their ends. gate may be nil.
func flood(t *testing.T, g *Gate, m *machine, sharer string, rate float64, d, patience time.Duration) *tally {
	t.Helper()
	var out tally
	var wg sync.WaitGroup
	gap := time.Duration(float64(time.Second) / rate)
	for began := time.Now(); time.Since(began) < d; time.Sleep(gap) {
		wg.Go(func() {
			ctx, hangUp := context.WithCancel(t.Context())
			defer time.AfterFunc(patience, hangUp).Stop()
			defer hangUp()
			asked := time.Now()
			err := start(ctx, g, m, sharer)
			out.mu.Lock()
			defer out.mu.Unlock()
			switch {
			case err == nil:
				out.good++
				out.waits += time.Since(asked)
			case ctx.Err() != nil:
				out.gaveUp++
			default:
				out.refused++
			}
		})
	}
	wg.Wait()
	return &out
}

// start is what a service does.
func start(ctx context.Context, g *Gate, m *machine, sharer string) (err error) {
	if g != nil {
		var p *Pass
		if p, err = g.Enter(ctx, Request{Op: "create sandbox", Lane: Create, Share: sharer, Class: "create"}); err != nil {
			return err
		}
		defer func() { p.Done(err) }()
	}
	return m.run(ctx)
}
