package admission

import (
	"context"
	"sync"
	"testing"
	"time"
)

// machine is a simulated machine with two processors, shared by all work. With more than sixteen at
// work, they cost each other more than their share: caches, locks, memory. It runs in a synctest
// bubble, so its seconds take no real time.
type machine struct {
	mu   sync.Mutex
	work int
	most int
}

const (
	processors = 2
	demand     = 40 * time.Millisecond // processor time for each start
	quantum    = 2 * time.Millisecond
	capacity   = float64(processors) / 0.040 // starts a second
)

// run does one start, or a part of it if ctx ends.
func (m *machine) run(ctx context.Context) error {
	m.add(1)
	defer m.add(-1)
	for left := float64(demand); left > 0; {
		speed := m.speed()
		step := max(quantum, time.Duration(left/speed/8)) // fewer steps when each does little
		select {
		case <-time.After(step):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		left -= float64(step) * speed
	}
	return nil
}

// speed is the share of a processor that each start has.
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

// tally counts the results of one caller's requests.
type tally struct {
	mu                    sync.Mutex
	good, refused, gaveUp int
	waits                 time.Duration // of the good ones, together
}

// flood sends requests at a rate for some time, each from a client with some patience, and waits
// until all have ended. gate may be nil.
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
