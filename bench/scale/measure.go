package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/scaling"
)

// measure measures the costs with one daemon and with four, and compares.
func measure(ctx context.Context, o options, c scaling.Costs) error {
	fmt.Printf("%d processors, load %s, tier %s, %d sandboxes\n\n", runtime.NumCPU(), load(), o.tier, o.n)
	one, err := start(ctx, o, "one")
	if err != nil {
		return err
	}
	c, err = costs(ctx, one, o, c)
	if err != nil {
		one.stop()
		return err
	}
	printCosts(c)
	got, err := storm(ctx, []*daemon{one}, o.n)
	one.stop()
	if err != nil {
		return err
	}
	fmt.Println("\n| | predicted | … with what it got of the processors | measured |\n|---|--:|--:|--:|")
	compare("one daemon, all at once", got, c, 1, o.n)
	var four []*daemon
	defer func() {
		for _, d := range four {
			d.stop()
		}
	}()
	for i := range 4 {
		d, err := start(ctx, o, fmt.Sprint("four-", i))
		if err != nil {
			return err
		}
		four = append(four, d)
	}
	for _, d := range four { // each makes its first start now
		if _, err := first(ctx, d); err != nil {
			return err
		}
	}
	if got, err = storm(ctx, four, o.n); err != nil {
		return err
	}
	compare("four daemons, all at once", got, c, 4, o.n)
	fmt.Printf("| … sandboxes on the fullest and the emptiest | – | – | %d, %d |\n\nload at the end: %s\n", slices.Max(got.placed), slices.Min(got.placed), load())
	if o.costs == "" {
		return nil
	}
	raw, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(o.costs, append(raw, '\n'), 0o644)
}

// load returns the machine's load. It shows how reliable the figures are.
func load() string {
	raw, _ := os.ReadFile("/proc/loadavg")
	return strings.Join(strings.Fields(string(raw))[:2], ", ")
}

// quiet reports whether other programs leave the processors to us.
func quiet() bool {
	var last float64
	_, err := fmt.Sscan(load(), &last)
	return err == nil && last < float64(runtime.NumCPU())+1
}

// first creates a sandbox and runs its first command.
func first(ctx context.Context, d *daemon) (carrel.ID, error) {
	sb, err := d.svc.Create(ctx, carrel.CreateOptions{Template: "base", Timeout: time.Hour})
	if err != nil {
		return "", err
	}
	c, err := d.svc.Computer(ctx, sb.ID)
	if err != nil {
		return sb.ID, err
	}
	p, err := c.Start(ctx, carrel.Command{Args: []string{"/bin/echo", "hello"}, Stdout: io.Discard})
	if err != nil {
		return sb.ID, err
	}
	_, err = p.Wait(ctx)
	return sb.ID, err
}

// costs measures the resources of one sandbox.
func costs(ctx context.Context, d *daemon, o options, c scaling.Costs) (scaling.Costs, error) {
	warm, err := first(ctx, d) // fills caches and makes connections
	if err != nil {
		return c, err
	}
	own, _ := d.memory()
	files := d.files()
	cpu, err := d.cpu()
	if err != nil {
		return c, err
	}
	var ids []carrel.ID
	var took []float64
	for range o.n {
		began := time.Now()
		id, err := first(ctx, d)
		if err != nil {
			return c, err
		}
		took = append(took, time.Since(began).Seconds())
		ids = append(ids, id)
	}
	n := float64(o.n)
	after, _ := d.cpu(ids...)
	c.ColdCPU = (after - cpu) / n
	slices.Sort(took)
	if quiet() { // otherwise the wall time includes waiting for other programs
		c.ColdIdle = max(0, took[len(took)/2]-c.ColdCPU)
	}
	c.Files, c.Tasks = (d.files()-files)/n, d.tasks(ids...)/n
	ownAfter, others := d.memory(ids...)
	c.DaemonBaseMB, c.DaemonMB, c.IdleMB = own, max(0, ownAfter-own)/n, others/n
	cpu, _ = d.cpu(ids...)
	select {
	case <-time.After(20 * time.Second):
	case <-ctx.Done():
		return c, ctx.Err()
	}
	after, _ = d.cpu(ids...)
	c.IdleCPU = (after - cpu) / 20 / (n + 1)
	if err := moments(ctx, d, ids, &c); err != nil {
		return c, err
	}
	for _, id := range append(ids, warm) {
		if err := d.svc.Kill(ctx, id); err != nil {
			return c, err
		}
	}
	return c, nil
}

// moments measures pausing and resuming.
func moments(ctx context.Context, d *daemon, ids []carrel.ID, c *scaling.Costs) error {
	ids = ids[:min(10, len(ids))]
	cpu, _ := d.cpu()
	for _, id := range ids {
		if _, err := d.svc.Pause(ctx, id, carrel.PauseOptions{}); err != nil {
			return err
		}
	}
	after, _ := d.cpu()
	c.PauseCPU = (after - cpu) / float64(len(ids))
	cpu = after // the time of a paused sandbox is lost; a resumed one starts at 0
	began := time.Now()
	for _, id := range ids {
		if _, _, err := d.svc.Resume(ctx, id, carrel.ResumeOptions{}); err != nil {
			return err
		}
	}
	after, _ = d.cpu(ids...)
	c.RestoreCPU = (after - cpu) / float64(len(ids))
	if quiet() {
		c.RestoreIdle = max(0, time.Since(began).Seconds()/float64(len(ids))-c.RestoreCPU)
	}
	return nil
}

func printCosts(c scaling.Costs) {
	fmt.Println("| a sandbox takes | |\n|---|--:|")
	for _, r := range []struct {
		what, form string
		v          float64
	}{
		{"processor time to the first command", "%.0f ms", 1000 * c.ColdCPU}, {"… and waiting for no processor", "%.0f ms", 1000 * c.ColdIdle},
		{"processor time to resume", "%.0f ms", 1000 * c.RestoreCPU}, {"processor time to pause", "%.0f ms", 1000 * c.PauseCPU},
		{"memory, idle", "%.1f MiB", c.IdleMB}, {"memory of the daemon for it", "%.2f MiB", c.DaemonMB}, {"of a processor, idle", "%.3f %%", 100 * c.IdleCPU},
		{"descriptors of the daemon", "%.1f", c.Files}, {"tasks", "%.1f", c.Tasks},
	} {
		fmt.Printf("| %s | "+r.form+" |\n", r.what, r.v)
	}
}

// outcome is the result of a storm.
type outcome struct {
	all    float64   // seconds until the last one was there
	took   []float64 // sorted
	cpu    float64   // processor seconds
	share  float64   // our share of the processors; others use them too
	placed []int
}

// storm asks for n sandboxes at once. One client places them by two choices. It knows only its own
// placements.
func storm(ctx context.Context, ds []*daemon, n int) (outcome, error) {
	out := outcome{placed: make([]int, len(ds)), took: make([]float64, n)}
	before := 0.0
	for _, d := range ds {
		v, _ := d.cpu()
		before += v
	}
	rng := rand.New(rand.NewPCG(1, 1))
	errs, ids, at := make([]error, n), make([]carrel.ID, n), make([]*daemon, n)
	var wg sync.WaitGroup
	began := time.Now()
	for i := range n {
		a, b := rng.IntN(len(ds)), rng.IntN(len(ds))
		if out.placed[b] < out.placed[a] {
			a = b
		}
		out.placed[a]++
		at[i] = ds[a]
		wg.Go(func() {
			ids[i], errs[i] = first(ctx, at[i])
			out.took[i] = time.Since(began).Seconds()
		})
	}
	wg.Wait()
	out.all = time.Since(began).Seconds()
	for _, err := range errs {
		if err != nil {
			return out, err
		}
	}
	for _, d := range ds {
		var own []carrel.ID
		for i := range ids {
			if at[i] == d {
				own = append(own, ids[i])
			}
		}
		v, _ := d.cpu(own...)
		out.cpu += v
	}
	out.cpu -= before
	slices.Sort(out.took)
	return out, nil
}

// compare prints a storm next to its simulation: the same number of nodes, which share this
// machine's processors.
func compare(name string, got outcome, c scaling.Costs, nodes, n int) {
	share := c
	k := float64(nodes) // a node with a part of the processors is like a slower one
	share.ColdCPU, share.IdleCPU = share.ColdCPU*k, 0
	r, err := scaling.Run(scaling.Config{
		Seed: 1, Nodes: nodes, Node: scaling.Node{Processors: runtime.NumCPU(), MemoryMB: 1 << 30, NetworkMBps: 1e6}, Costs: share,
		Policy: scaling.TwoChoices, Load: scaling.Load{Rate: 1, Burst: n, BurstShare: 1, Templates: 1, Active: 1e6},
		Seconds: 60 * float64(n), Placers: 1, Stale: 1e9, Cache: 1, MaxWait: 1e9,
	})
	if err != nil {
		fmt.Printf("| %s | %v | |\n", name, err)
		return
	}
	cores := float64(runtime.NumCPU())
	got.share = min(1, got.cpu/got.all/cores)
	row := func(what, form string, predicted, measured float64) {
		fmt.Printf("| "+what+" | "+form+" | "+form+" | "+form+" |\n", predicted, c.ColdIdle+(predicted-c.ColdIdle)/got.share, measured)
	}
	fmt.Printf("| %s: processor seconds | %.2f | – | %.2f |\n", name, c.ColdCPU*float64(n), got.cpu)
	fmt.Printf("| … of the processors, it got | – | – | %.0f %% |\n", 100*got.share)
	row("… until the last is there, from the model", "%.2f s", c.ColdIdle+c.ColdCPU*float64(n)/cores, got.all)
	row("… half are there, from the simulation", "%.2f s", r.P50, got.took[n/2])
	row("… 19 of 20 are there", "%.2f s", r.P95, got.took[n*95/100])
}
