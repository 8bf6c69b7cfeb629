package service

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
)

// Owner says which sandboxes may run here. A machine of a fleet has one.
type Owner interface {
	// Begin is called before a paused sandbox runs again. An error keeps it paused.
	Begin(ctx context.Context, id carrel.ID) error
	// Failed is called when the sandbox did not run after Begin, and is paused again.
	Failed(id carrel.ID)
}

// Tether holds a service's sandboxes while this machine is cut off from its fleet: they may be
// another machine's by now. Their processes stand still, and nobody gets in.
type Tether struct {
	table *table
	log   *slog.Logger

	mu    sync.Mutex
	owner Owner
	why   error              // nil: the sandboxes run
	stop  context.CancelFunc // ends the goroutine that holds them
	done  chan struct{}      // closed when it has ended
	still map[*box]driver.Instance
}

// TetherOf returns the tether of a service.
func TetherOf(s *Service) *Tether { return s.tether }

// Use makes o decide which sandboxes may run. It is called once, before anything is served.
func (t *Tether) Use(o Owner) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.owner = o
}

// holdAgain is the pause between two looks for sandboxes that run although they are held: an
// operation that was under way may let one go.
const holdAgain = time.Second

// Hold holds all sandboxes until Unhold.
func (t *Tether) Hold(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.why != nil {
		return
	}
	ctx, stop := context.WithCancel(t.table.ctx)
	t.why, t.stop, t.done, t.still = why, stop, make(chan struct{}), map[*box]driver.Instance{}
	if !t.table.spawn(func() { t.keep(ctx, t.done) }) {
		close(t.done)
	}
}

// keep freezes what runs, again and again, until ctx ends.
func (t *Tether) keep(ctx context.Context, done chan<- struct{}) {
	defer close(done)
	for {
		var wg sync.WaitGroup
		for _, b := range t.table.awake() {
			wg.Go(func() { t.freeze(ctx, b) })
		}
		wg.Wait()
		select {
		case <-ctx.Done():
			return
		case <-time.After(holdAgain):
		}
	}
}

func (t *Tether) freeze(ctx context.Context, b *box) {
	b.mu.Lock()
	inst := b.inst
	b.mu.Unlock()
	f, ok := driver.As[driver.Freezer](inst)
	if inst == nil || !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, freezeTime)
	defer cancel()
	if err := f.Freeze(ctx); err != nil {
		if ctx.Err() == nil {
			t.log.Error("hold sandbox", "sandbox", b.id, "err", err)
		}
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.still[b] = inst
}

// Unhold lets the sandboxes go on that are still here.
func (t *Tether) Unhold() {
	t.mu.Lock()
	if t.why == nil {
		t.mu.Unlock()
		return
	}
	stop, done := t.stop, t.done
	t.mu.Unlock()
	stop()
	<-done
	t.mu.Lock()
	still := t.still
	t.why, t.still = nil, nil
	t.mu.Unlock()
	var wg sync.WaitGroup
	for b, inst := range still {
		b.mu.Lock()
		same := b.inst == inst && b.rec.Sandbox.State == carrel.Running
		b.mu.Unlock()
		if !same { // a pause or an end has it, which thaws it if it must
			continue
		}
		wg.Go(func() {
			if err := thaw(t.table.ctx, b.id, inst); err != nil {
				t.log.Error("let a held sandbox go on", "sandbox", b.id, "err", err)
			}
		})
	}
	wg.Wait()
}

// held returns an error while the sandboxes are held.
func (t *Tether) held(op string, id carrel.ID) error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.why == nil {
		return nil
	}
	return &carrel.Error{Op: op, Kind: carrel.Unavailable, ID: id, RetryAfter: holdAgain,
		Err:  fmt.Errorf("this machine is cut off from its fleet, and its sandboxes are held: %w", t.why),
		Hint: "ask a front of the fleet: it knows where the sandbox is"}
}

// begin asks the owner whether a paused sandbox may run. failed must be called if it does not run
// afterwards.
func (t *Tether) begin(ctx context.Context, id carrel.ID) (failed func(), err error) {
	if t == nil {
		return func() {}, nil
	}
	t.mu.Lock()
	o := t.owner
	t.mu.Unlock()
	if o == nil {
		return func() {}, nil
	}
	if err := o.Begin(ctx, id); err != nil {
		return nil, err
	}
	return func() { o.Failed(id) }, nil
}
