package service

import (
	"context"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
)

// Check is what Doctor found out about one driver.
type Check struct {
	Driver  string
	Tier    carrel.Tier
	Default bool // new sandboxes use it unless they say otherwise
	// Err says why no sandbox can be made with it here, with a hint; nil when some can.
	Err error
	// Findings are what works only in part.
	Findings []driver.Finding
}

// Doctor asks every driver, afresh, whether it works on this host.
func (s *Service) Doctor(ctx context.Context) ([]Check, error) {
	drivers := s.opts.Drivers.All()
	checks := make([]Check, len(drivers))
	var wg sync.WaitGroup
	for i, d := range drivers {
		wg.Go(func() {
			info := d.Info()
			c := Check{Driver: info.Name, Tier: info.Tier, Default: info.Tier == s.opts.DefaultTier, Err: d.Probe(ctx)}
			if r, ok := driver.As[driver.Reporter](d); ok {
				c.Findings = r.Report(ctx)
			}
			checks[i] = c
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return nil, &carrel.Error{Op: "examine drivers", Kind: carrel.TimedOut, Err: err}
	}
	return checks, nil
}

// Stats is how full the service is.
type Stats struct {
	Starting, Running, Stopping int
	Max                         int // that may live at once; 0 is any number
}

// Stats counts the sandboxes.
func (s *Service) Stats() Stats {
	st := Stats{Max: s.opts.MaxSandboxes}
	for _, b := range s.snapshot() {
		switch b.public().State {
		case carrel.Starting:
			st.Starting++
		case carrel.Stopping:
			st.Stopping++
		default:
			st.Running++
		}
	}
	return st
}

// probes remembers which drivers were found to work. One that does not is asked
// again by the next creation: its host may have been mended.
type probes struct {
	mu sync.Mutex
	by map[carrel.Tier]*probe
}

type probe struct {
	done chan struct{}
	err  error // set before done is closed
}

const probeTime = 30 * time.Second

// probe makes sure that a driver works on this host.
func (s *Service) probe(ctx context.Context, d driver.Driver) error {
	tier := d.Info().Tier
	s.probes.mu.Lock()
	p, asked := s.probes.by[tier]
	if !asked {
		p = &probe{done: make(chan struct{})}
		if s.probes.by == nil {
			s.probes.by = map[carrel.Tier]*probe{}
		}
		s.probes.by[tier] = p
	}
	s.probes.mu.Unlock()
	if !asked && !s.spawn(func() { s.ask(d, tier, p) }) {
		p.err = &carrel.Error{Op: "probe driver", Kind: carrel.Unavailable, Err: errClosing}
		close(p.done)
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return &carrel.Error{Op: "probe driver", Kind: carrel.TimedOut, Err: context.Cause(ctx)}
	}
}

// ask runs one probe for all who wait for it.
func (s *Service) ask(d driver.Driver, tier carrel.Tier, p *probe) {
	ctx, cancel := context.WithTimeout(s.ctx, probeTime)
	defer cancel()
	p.err = d.Probe(ctx)
	if p.err != nil {
		s.probes.mu.Lock()
		delete(s.probes.by, tier)
		s.probes.mu.Unlock()
	}
	close(p.done)
}
