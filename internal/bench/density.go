package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carrel-dev/carrel"
)

// benchDensity keeps many idle sandboxes alive. On the way up it measures the cost of each, and
// their effect on the others.
func benchDensity(ctx context.Context, s *session) ([]row, error) {
	n := s.o.Idle
	if s.o.Quick {
		n = min(n, 20)
	}
	wanted := n
	d, err := s.daemon(ctx, "--max-sandboxes", fmt.Sprint(n+100))
	if err != nil {
		return nil, err
	}
	defer d.stop()
	if err := d.feel(ctx); err != nil { // the first ones warm the page cache
		return nil, err
	}
	c := &crowd{d: d, s: s, random: rand.New(rand.NewPCG(1, 2))}
	defer func() { d.killAll(ctx, c.ids) }()
	c.daemon0, c.total0, c.free0 = residentMemory(d.cmd.Process.Pid), d.proportionalMemory(), memInfo("MemAvailable:")
	for _, step := range steps(n) {
		if err := c.grow(ctx, step); err != nil {
			return nil, err
		}
		n = len(c.ids)
		if err := c.look(ctx); err != nil {
			return nil, err
		}
		if n == othersIdle {
			if err := c.times(ctx); err != nil {
				return nil, err
			}
		}
		if n < step {
			break
		}
	}
	if c.timesRows == nil {
		if err := c.times(ctx); err != nil {
			return nil, err
		}
	}
	rest := 20 * time.Second
	if s.o.Quick {
		rest = 5 * time.Second
	}
	if err := c.settle(ctx); err != nil {
		return nil, err
	}
	cpu, start := d.cpu(), time.Now()
	if err := sleep(ctx, rest); err != nil {
		return nil, err
	}
	own, _ := d.cpu().since(cpu)
	busy := 100 * own.Seconds() / time.Since(start).Seconds()
	alive, err := c.alive(ctx)
	if err != nil {
		return nil, err
	}
	label := fmt.Sprintf("with %d idle sandboxes: ", n)
	return append([]row{
		atLeast(single(label+"alive", "", float64(alive)), float64(wanted)).key("density.alive"),
		fewer(label+"memory of each, daemon's share included", "MiB", []float64{c.each}, 10).key("density.memory"),
		single("  memory of this machine gone, for each", "MiB", c.gone).key("density.gone"),
		fewer("  the daemon's memory", "MiB", []float64{c.resident}, 400).key("density.daemon"),
		single("  the daemon's memory before any", "MiB", float64(c.daemon0)/(1<<20)),
		fewer("  the daemon's share of a core while all are idle", "%", []float64{busy}, 5).key("density.cpu"),
		summarise(label+"exec in each", "ms", c.execs).key("density.exec"),
		atMost(single("  p95 of that", "ms", p95(c.execs)), 60).key("density.exec.p95"),
		summarise(label+"create", "ms", c.creates).key("density.create"),
	}, c.timesRows...), nil
}

// othersIdle is the number of other sandboxes during the measurement of operations on time, if
// there are that many.
const othersIdle = 500

// times measures these operations among the present sandboxes.
func (c *crowd) times(ctx context.Context) error {
	if err := c.settle(ctx); err != nil {
		return err
	}
	pause, resume, err := c.d.pauses(ctx, 50, c.s.o.samples(20))
	if err != nil {
		return err
	}
	label := fmt.Sprintf("with %d others idle: ", len(c.ids))
	forks, err := c.d.forkRow(ctx, c.s.o, label)
	if err != nil {
		return err
	}
	c.timesRows = []row{
		single("others idle, for what follows", "", float64(len(c.ids))).key("density.others"),
		summarise(label+"pause, 50 MB held", "ms", pause).key("density.pause"),
		atMost(summarise(label+"resume → first command's output, 50 MB held", "ms", resume), 110).key("density.resume"),
		forks.key("density.fork"),
	}
	return nil
}

// settle waits until the crowd has no work left. A process that was busy collects after 15 seconds,
// and kept connections close after a minute.
func (c *crowd) settle(ctx context.Context) error {
	if c.s.o.Quick {
		return sleep(ctx, 5*time.Second)
	}
	return sleep(ctx, 90*time.Second)
}

// steps returns the counts at which a crowd of n is measured.
func steps(n int) []int {
	var list []int
	for _, at := range []int{1, 10, 25, 50, 100, 200, 300, 500, 750, 1000, 1250, 1500, 1750, 2000, 2500, 3000, 4000, 5000} {
		if at < n {
			list = append(list, at)
		}
	}
	return append(list, n)
}

// crowd is a number of idle sandboxes.
type crowd struct {
	d         *daemon
	s         *session
	random    *rand.Rand
	ids       []carrel.ID
	computers []carrel.Computer

	daemon0, total0, free0 int64 // memory before any
	// Of the last look:
	each, gone, resident float64 // MiB
	execs, creates       []float64

	timesRows []row // see times
}

// timedCreates is how many creates of a step are timed, one after another. The others come before,
// a few at a time.
const timedCreates = 20

// grow creates sandboxes until there are n, or the machine has no more room.
func (c *crowd) grow(ctx context.Context, n int) error {
	c.creates = nil
	for len(c.ids) < n {
		many := 1
		if n-len(c.ids) > timedCreates {
			many = min(4, n-len(c.ids)-timedCreates)
		}
		made, took, err := c.some(ctx, many)
		if many == 1 && err == nil {
			c.creates = append(c.creates, took)
		}
		for _, m := range made {
			c.ids, c.computers = append(c.ids, m.id), append(c.computers, m.computer)
		}
		if kind := carrel.KindOf(err); (kind == carrel.Unavailable || kind == carrel.Exhausted) && len(c.ids) > 0 {
			c.s.logf("no room for more than %d: %v", len(c.ids), err)
			break
		}
		if err != nil {
			return fmt.Errorf("sandbox %d: %w", len(c.ids)+1, err)
		}
	}
	return sleep(ctx, 5*time.Second) // lets them come to rest
}

// idler is one of the crowd.
type idler struct {
	id       carrel.ID
	computer carrel.Computer
}

// some creates a few sandboxes at once. It returns the new ones, the total time, and the first
// error.
func (c *crowd) some(ctx context.Context, many int) (made []idler, took float64, err error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	start := time.Now()
	for range many {
		all.Go(func() {
			id, computer, failed := c.d.create(ctx)
			mu.Lock()
			defer mu.Unlock()
			if failed == nil {
				made = append(made, idler{id, computer})
			} else if err == nil {
				err = failed
			}
		})
	}
	all.Wait()
	return made, ms(time.Since(start)), err
}

// look measures at the present count, and stores the points for the plots.
func (c *crowd) look(ctx context.Context) error {
	n := float64(len(c.ids))
	const mib = 1 << 20
	c.resident = float64(residentMemory(c.d.cmd.Process.Pid)) / mib
	// Proportional set sizes are 3 MiB too large for each here: if few processes map a part of a
	// large folio, its pages count as theirs alone.
	if charged, ok := c.d.charged(); ok {
		c.each = float64(charged+max(0, residentMemory(c.d.cmd.Process.Pid)-c.daemon0)) / n / mib
	} else {
		c.each = float64(c.d.proportionalMemory()-c.total0) / n / mib
	}
	c.gone = float64(c.free0-memInfo("MemAvailable:")) / n / mib
	c.execs = nil
	// An order that no cache expects. While there are few, each comes at least once.
	order := c.random.Perm(len(c.computers))
	for len(order) < 40 {
		order = append(order, c.random.Perm(len(c.computers))...)
	}
	for _, i := range order[:max(40, min(len(order), 300))] {
		start := time.Now()
		if err := echo(ctx, c.computers[i]); err != nil {
			return fmt.Errorf("sandbox %d of %d: %w", i+1, len(c.ids), err)
		}
		c.execs = append(c.execs, ms(time.Since(start)))
	}
	c.s.logf("%d idle sandboxes: %.1f MiB each, create %.0f ms, exec %.1f ms, daemon %.0f MiB", len(c.ids), c.each, median(c.creates), median(c.execs), c.resident)
	for series, y := range map[string]float64{
		"density.create": median(c.creates), "density.exec": median(c.execs), "density.exec.p95": p95(c.execs),
		"density.memory": c.each, "density.gone": c.gone, "density.daemon": c.resident,
	} {
		c.s.results.Points = append(c.s.results.Points, point{series, n, y})
	}
	return nil
}

// alive counts the sandboxes that answer, a few at a time.
func (c *crowd) alive(ctx context.Context) (int, error) {
	var count atomic.Int64
	var g errgroup.Group
	g.SetLimit(4)
	for i, computer := range c.computers {
		g.Go(func() error {
			if err := echo(ctx, computer); err != nil {
				c.s.logf("sandbox %d of %d does not answer: %v", i+1, len(c.computers), err)
				return nil
			}
			count.Add(1)
			return nil
		})
	}
	_ = g.Wait()
	return int(count.Load()), ctx.Err()
}

// feel creates, uses and kills a sandbox.
func (d *daemon) feel(ctx context.Context) error {
	_, err := d.starting("a first one", base(carrel.GVisor), nil).once(ctx)
	return err
}

// sleep waits, unless the run is interrupted.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
