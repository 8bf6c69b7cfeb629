package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// insideSmoke are the checks of work inside of a box.
type insideSmoke struct {
	checks []smokeCheck
	remove func()
}

// insideChecks compares work in a box with the same work outside. The box of each round does the
// work of one check.
func insideChecks(ctx context.Context, o Options, program string) (insideSmoke, error) {
	o.Carrel, o.Quick = program, true
	b, err := newRunBench(o)
	if err != nil {
		return insideSmoke{}, err
	}
	s := insideSmoke{remove: func() { _ = os.RemoveAll(b.dir) }}
	b.work = filepath.Join(b.dir, "home", "inside")
	err = b.repository(ctx, insideFiles, 100)
	if err == nil {
		err = write(filepath.Join(b.dir, "home", "inside.py"), insideScript)
	}
	if err != nil {
		s.remove()
		return s, err
	}
	work := func(c contestant, key string) func() *runner {
		return func() *runner {
			return &runner{name: c.name, once: func(ctx context.Context) (time.Duration, error) {
				took := map[string]map[string][]float64{}
				if err := b.insideOnce(ctx, &c, took, key); err != nil {
					return 0, err
				}
				if len(took[key][c.name]) == 0 {
					return 0, fmt.Errorf("%s: no figure for %s", c.name, key)
				}
				return time.Duration(took[key][c.name][0] * float64(time.Microsecond)), nil
			}}
		}
	}
	bare, ours := contestant{name: "bare"}, contestant{name: "carrel run", prefix: []string{b.carrel, "run", "-q", "--"}}
	limits := map[string]float64{"git": 4, "file": 10, "unix": 25, "tcp": 10}
	for _, w := range insideWorks {
		s.checks = append(s.checks, smokeCheck{w.what + ": inside ÷ bare", limits[w.key], work(ours, w.key), work(bare, w.key)})
	}
	start := func(args ...string) func() *runner {
		return func() *runner { return process(b.work, "carrel run", append([]string{b.carrel, "run"}, args...)...) }
	}
	s.checks = append(s.checks, smokeCheck{"carrel run --allow true ÷ carrel run true, processor time", 4, start("--allow", "example.com", "--", "true"), start("--", "true")})
	return s, nil
}
