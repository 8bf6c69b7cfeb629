package service

import (
	"context"
	"maps"
	"sync"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/quota"
)

// Check is the result of examining one driver.
type Check struct {
	Driver  string
	Tier    carrel.Tier
	Default bool // new sandboxes use this driver by default
	// Err says why this driver can make no sandbox here, with a hint. It is nil when it can.
	Err error
	// Findings are the features that work only in part.
	Findings []driver.Finding
}

// Examine checks again whether a driver works on this host. standard is the tier of sandboxes that
// ask for none.
func Examine(ctx context.Context, d driver.Driver, standard carrel.Tier) Check {
	info := d.Info()
	c := Check{Driver: info.Name, Tier: info.Tier, Default: info.Tier == standard, Err: d.Probe(ctx)}
	if r, ok := driver.As[driver.Reporter](d); ok {
		c.Findings = r.Report(ctx)
	}
	return c
}

// Doctor checks again, for every driver, whether it works on this host. It also lists what needs
// another build than this one.
func (s *Service) Doctor(ctx context.Context) ([]Check, error) {
	drivers := s.opts.Drivers.All()
	checks := make([]Check, len(drivers))
	var wg sync.WaitGroup
	for i, d := range drivers {
		wg.Go(func() {
			checks[i] = Examine(ctx, d, s.opts.DefaultTier)
			checks[i].Findings = append(checks[i].Findings, s.archive.builds.findings(ctx, d)...)
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return nil, &carrel.Error{Op: "examine drivers", Kind: carrel.TimedOut, Err: err}
	}
	return checks, nil
}

// Stats says how full the service is.
type Stats struct {
	Starting, Running, Stopping int
	Max                         int // most that may live at once; 0 is no limit
	// Sandboxes are all of them, counted by their properties.
	Sandboxes map[Kin]int
	// Held is what each project's living sandboxes may use.
	Held map[string]quota.Load
}

// Kin are the properties by which sandboxes are counted.
type Kin struct {
	Project string
	Tier    carrel.Tier
	State   carrel.State
}

// Stats counts the sandboxes. It looks at none of them, so their number costs nothing.
func (s *Service) Stats() Stats {
	r := s.table.roll
	st := Stats{Starting: r.count(carrel.Starting), Stopping: r.count(carrel.Stopping), Max: s.opts.MaxSandboxes,
		Held: map[string]quota.Load{}}
	for _, other := range []carrel.State{carrel.Running, carrel.Pausing, carrel.Paused, carrel.Resuming} {
		st.Running += r.count(other)
	}
	r.mu.Lock()
	st.Sandboxes = maps.Clone(r.tally)
	r.mu.Unlock()
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.table.book.Projects(func(project string, l quota.Load) { st.Held[project] = l })
	return st
}
