// Command scale prints the figures of docs/SCALING.md: how many sandboxes one machine has room for,
// by the costs of each, and a simulation of a thousand machines. With -measure it measures the
// costs on this machine, with one daemon and with four together, and compares the simulation's
// prediction with the result.
//
//	go run ./bench/scale [-seed N] [-nodes N] [-costs FILE]
//	go run ./bench/scale -measure [-carrel bin/carrel] [-tier gvisor] [-n 40] [-costs FILE]
//
// -costs reads the costs from a file that -measure wrote; the built-in ones are those of the
// document.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/scaling"
)

type options struct {
	seed    uint64
	nodes   int
	costs   string
	measure bool
	carrel  string
	cache   string
	tier    string
	n       int
}

func main() {
	var o options
	flag.Uint64Var(&o.seed, "seed", 1, "of the simulation's chances")
	flag.IntVar(&o.nodes, "nodes", 1000, "how many machines to simulate")
	flag.StringVar(&o.costs, "costs", "", "file of costs (JSON)")
	flag.BoolVar(&o.measure, "measure", false, "measure this machine, and write -costs")
	flag.StringVar(&o.carrel, "carrel", "bin/carrel", "the binary to measure")
	flag.StringVar(&o.cache, "cache-dir", "", "its cache directory, so that the base template is not packed again")
	flag.StringVar(&o.tier, "tier", "gvisor", "the tier to measure")
	flag.IntVar(&o.n, "n", 40, "how many sandboxes to measure with")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		if hint := carrel.HintOf(err); hint != "" {
			fmt.Fprintln(os.Stderr, "hint:", hint)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	costs := scaling.Measured
	if o.measure {
		return measure(ctx, o, costs)
	}
	if o.costs != "" {
		raw, err := os.ReadFile(o.costs)
		if err == nil {
			err = json.Unmarshal(raw, &costs)
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", o.costs, err)
		}
	}
	fmt.Print("## One node\n\n")
	printLimits(costs)
	return simulate(ctx, o, costs)
}

// The machines of the tables.
var (
	smallNode = scaling.Node{Processors: 2, MemoryMB: 24 << 10, DiskMB: 200 << 10, Files: 1 << 19, Tasks: 190 << 10, NetworkMBps: 125}
	largeNode = scaling.Node{Processors: 64, MemoryMB: 512 << 10, DiskMB: 4 << 20, Files: 1 << 20, Tasks: 4 << 20, NetworkMBps: 1250}
	fleetNode = scaling.Node{Processors: 16, MemoryMB: 64 << 10, DiskMB: 1 << 20, Files: 1 << 20, Tasks: 1 << 20, NetworkMBps: 1250}
)

func printLimits(c scaling.Costs) {
	small, large := c.Limits(smallNode, 0.05), c.Limits(largeNode, 0.05)
	fmt.Println("| idle sandboxes that … has room for | 2 processors, 24 GiB | 64 processors, 512 GiB |\n|---|--:|--:|")
	for i := range small {
		fmt.Printf("| %s | %.0f | %.0f |\n", small[i].What, small[i].Most, large[i].Most)
	}
	fmt.Printf("| cold starts a second | %.0f | %.0f |\n", c.Sustained(smallNode), c.Sustained(largeNode))
}

// fleet returns the simulated run on which the tables are based.
func fleet(o options, c scaling.Costs) scaling.Config {
	return scaling.Config{
		Seed: o.seed, Nodes: o.nodes, Node: fleetNode, Costs: c, Policy: scaling.Locality,
		Load: scaling.Load{Rate: float64(o.nodes) / 2, Wave: 0.3, Period: 100, Burst: 50, BurstShare: 0.3, Templates: 500, Skew: 1,
			Active: 60, Pauses: 0.7, Away: 30, WorkMB: 250, WorkCPU: 0.02},
		Seconds: 200, Warmup: 160, Placers: 4, Stale: 1, Warm: 16, Cache: 20, TemplateMB: 500, MaxWait: 20,
	}
}

// simulate prints the tables of many machines.
func simulate(ctx context.Context, o options, c scaling.Costs) error {
	base := fleet(o, c)
	began, events := time.Now(), 0
	do := func(name string, cfg scaling.Config) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		r, err := scaling.Run(cfg)
		if err != nil {
			return err
		}
		events += r.Events
		printResult(name, r)
		return nil
	}
	fmt.Printf("\n## Placement: %d nodes of %d processors and %.0f GiB, %.0f sessions a second\n\n", base.Nodes, base.Node.Processors, base.Node.MemoryMB/1024, base.Load.Rate)
	header("policy")
	for _, p := range scaling.Policies {
		cfg := base
		cfg.Policy = p
		if err := do(string(p), cfg); err != nil {
			return err
		}
	}
	if base.Nodes > 200 { // the rest is about one node, or the same for any number
		base.Nodes, base.Load.Rate = 200, base.Load.Rate*200/float64(base.Nodes)
	}
	fmt.Printf("\nOf %d nodes:\n", base.Nodes)
	fmt.Print("\n## How old the placers' knowledge is\n\n")
	header("policy, seconds")
	for _, p := range []scaling.Policy{scaling.LeastLoaded, scaling.Locality} {
		for _, stale := range []float64{0.1, 5, 20} {
			cfg := base
			cfg.Policy, cfg.Stale = p, stale
			if err := do(fmt.Sprintf("%s, %g", p, stale), cfg); err != nil {
				return err
			}
		}
	}
	fmt.Print("\n## How many are kept ready on a node, at most\n\n")
	header("at most")
	for _, warm := range []int{0, 8, 32} {
		cfg := base
		cfg.Warm = warm
		if err := do(fmt.Sprint(warm), cfg); err != nil {
			return err
		}
	}
	fmt.Print("\n## How much the fleet can take\n\n")
	header("times the sessions")
	for _, times := range []float64{2, 3, 4} {
		cfg := base
		cfg.Load.Rate *= times
		cfg.Seconds = cfg.Warmup + 50
		if err := do(fmt.Sprintf("%g", times), cfg); err != nil {
			return err
		}
	}
	if err := million(o, c, do); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "scale: %d events in %v\n", events, time.Since(began).Round(time.Second))
	return nil
}

// million prints the tables of a million sandboxes on a thousand nodes: 15,000 creations a minute, and the
// death of one node in twenty.
func million(o options, c scaling.Costs, do func(string, scaling.Config) error) error {
	base := scaling.Config{
		Seed: o.seed, Nodes: o.nodes, Node: fleetNode, Costs: c, Policy: scaling.Locality,
		Load: scaling.Load{Rate: float64(o.nodes) / 4, Burst: 50, BurstShare: 0.3, Templates: 500, Skew: 1,
			Active: 4000, WorkMB: 20, WorkCPU: 0.002},
		Seconds: 16_120, Warmup: 16_000, Placers: 4, Stale: 1, Warm: 16, Cache: 20, TemplateMB: 500, MaxWait: 20,
	}
	fmt.Printf("\n## A million: %d nodes, %.0f creations a minute, %.0f sandboxes\n\n", base.Nodes, 60*base.Load.Rate, base.Load.Rate*base.Load.Active)
	if err := withAndWithout(base, do); err != nil {
		return err
	}
	half := base // half a day's work: most are paused, and come back
	half.Load.Active, half.Load.Pauses, half.Load.Away = 400, 0.9, 3600
	half.Seconds, half.Warmup = 12_120, 12_000
	fmt.Printf("\n## … of which nine in ten are paused when they have worked, and come back after an hour\n\n")
	return withAndWithout(half, do)
}

// withAndWithout prints a table of two runs: without the death of nodes, and with it.
func withAndWithout(cfg scaling.Config, do func(string, scaling.Config) error) error {
	header("one node in twenty dies")
	if err := do("no", cfg); err != nil {
		return err
	}
	cfg.Failure = scaling.Failure{At: cfg.Warmup + 1, Part: 0.05, Silence: 4, Lease: 15, Dial: 2, Back: 1e9}
	return do("yes", cfg)
}

func header(first string) {
	fmt.Printf("| %s | started | refused | p50 | p95 | p99 | ready | resumed p50 | p95 | templates fetched | snapshots moved | GB moved | memory | most | uneven | kept ready | running | lost | misplaced |\n", first)
	fmt.Println("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
}

func printResult(name string, r scaling.Result) {
	fmt.Printf("| %s | %d | %.1f %% | %s | %s | %s | %.0f %% | %s | %s | %d | %d | %.0f | %.0f %% | %.0f %% | %.2f | %.0f MB | %.0f | %d | %d |\n", name, r.Started,
		100*float64(r.Refused)/float64(max(1, r.Started+r.Resumed+r.Refused)), ms(r.P50), ms(r.P95), ms(r.P99), 100*r.WarmHits, ms(r.ResumeP50), ms(r.ResumeP95),
		r.Fetches, r.Moves, r.MovedGB, 100*r.Memory, 100*r.MemoryMost, r.Uneven, r.WarmMB, r.Running, r.Lost, r.Misplaced)
}

func ms(s float64) string {
	if s < 1 {
		return fmt.Sprintf("%.0f ms", 1000*s)
	}
	return fmt.Sprintf("%.2f s", s)
}
