package bench

import (
	"context"
	"time"

	"github.com/carrel-dev/carrel"
)

// starting is a create and the output of its first command, on a daemon and a tier. The time until
// create returned goes to made.
func (d *daemon) starting(name string, opts carrel.CreateOptions, made *[]float64) *runner {
	return &runner{name: name, once: func(ctx context.Context) (time.Duration, error) {
		start := time.Now()
		sb, err := d.svc.Create(ctx, opts)
		if err != nil {
			return 0, err
		}
		until := time.Since(start)
		c, err := d.svc.Computer(ctx, sb.ID)
		if err == nil {
			err = echo(ctx, c)
		}
		took := time.Since(start)
		if end := d.svc.Kill(ctx, sb.ID); err == nil {
			err = end
		}
		if made != nil {
			*made = append(*made, ms(until))
		}
		return took, err
	}}
}

// base returns the options of most sandboxes here.
func base(tier carrel.Tier) carrel.CreateOptions {
	return carrel.CreateOptions{Template: "base", Tier: tier, Timeout: time.Hour}
}

// createGap lets the work after the last start end: the removal of its sandbox, and the start of a
// kernel for the next one.
const createGap = 250 * time.Millisecond

// benchCreate measures from the create request to the first command's output, in turns: cold, from
// the pool, simulated, and the peers.
func benchCreate(ctx context.Context, s *session) ([]row, error) {
	d, err := s.coldDaemon(ctx)
	if err != nil {
		return nil, err
	}
	const warmUp = 2
	var made, adopted []float64
	cold := d.starting("cold", base(carrel.GVisor), &made)
	sim := d.starting("simulated", base(carrel.Sim), nil)
	list := []*runner{cold, sim}
	w, err := s.warmDaemon(ctx, 8)
	if err != nil {
		s.logf("warm starts are left out: %v", err)
	} else {
		defer w.stop()
		list = append(list, w.rested(w.starting("warm", base(carrel.GVisor), &adopted), 8))
	}
	peers := s.peers(ctx, (*stock).creating)
	list = append(list, peers...)
	for _, r := range list {
		r.gap = createGap
	}
	cpu := d.cpu()
	if err := race(ctx, warmUp, s.o.samples(60), list...); err != nil {
		return nil, err
	}
	daemonCPU, childCPU := d.cpu().since(cpu)
	each := 1 / float64(len(made)+len(sim.times)+warmUp)
	rows := []row{
		fewer("cold create → first command's output", "ms", cold.times, 60).key("create.cold"),
		summarise("  of which until create returned", "ms", made[warmUp:]).key("create.cold.returned"),
		single("  processor time of the daemon, each", "ms", ms(daemonCPU)*each),
		single("  processor time of what it started and ended, each", "ms", ms(childCPU)*each),
		summarise("create → first command's output, simulated", "ms", sim.times).key("create.sim"),
	}
	if w != nil {
		rows = append(rows, fewer("warm create → first command's output", "ms", list[2].times, 10).key("create.warm"),
			summarise("  of which until create returned", "ms", adopted[warmUp:]).key("create.warm.returned"),
			atLeast(ratio("  cold ÷ warm", cold.times, list[2].times), 2).key("create.cold/warm"))
	}
	for _, p := range peers {
		rows = append(rows, summarise(p.name+": run and exec, the same job", "ms", p.times).key("create."+p.name))
		r := ratio("  ÷ cold create", p.times, cold.times).key("create." + p.name + "/cold")
		if p.name == "stock runsc" {
			r = atLeast(r, 1.5)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// peers returns the container runtimes that work here. Each does the same job once.
func (s *session) peers(ctx context.Context, job func(*stock) (*runner, error)) []*runner {
	var list []*runner
	for _, open := range []func(context.Context) (*stock, error){s.runsc, s.runc} {
		st, err := open(ctx)
		var r *runner
		if err == nil {
			r, err = job(st)
		}
		if err == nil {
			_, err = r.once(ctx) // shows whether it works here
		}
		if err != nil {
			s.logf("a peer is left out: %v", err)
			continue
		}
		list = append(list, r)
	}
	return list
}
