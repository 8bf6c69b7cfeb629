package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/linux/tap"
	"github.com/carrel-dev/carrel/internal/reexec"
)

// Options say what to measure and where the results go.
type Options struct {
	// Names are the measurements; none means all of them except the soak.
	Names []string
	// Carrel is the binary to measure.
	Carrel string
	// CacheDir is the daemon's cache, so that built-in templates are not made again; "" is its
	// default.
	CacheDir string
	// Base says what the daemons' template base is: host or debian; "" is their default.
	Base string
	// MicroVMKernel is the directory with the kernel of virtual machines.
	MicroVMKernel string
	// Quick takes few samples.
	Quick bool
	// Smoke compares a few things and fails if a ratio is far off.
	Smoke bool
	// JSON is the file for the results, as JSON lines; "-" is standard output, instead of the
	// table.
	JSON string
	// Compare is a results file of an earlier run.
	Compare string
	// Plots is the directory for plots.
	Plots string
	// Profile is the directory for the daemon's CPU profiles.
	Profile string
	// Idle, Paused and Chain are numbers of sandboxes: kept idle, kept paused, and made one after
	// another.
	Idle, Paused, Chain int
	// For is how long the soak lasts.
	For time.Duration
	// Out gets the results, Log everything else.
	Out, Log io.Writer
}

// Flags declares flags for all options that a user chooses.
func (o *Options) Flags(f *flag.FlagSet) {
	f.BoolVar(&o.Quick, "quick", false, "few samples: three minutes instead of fifteen")
	f.BoolVar(&o.Smoke, "smoke", false, "compare a few things in turns and fail when a ratio is far off")
	f.StringVar(&o.JSON, "json", "", "write the results to this file as JSON lines (-: to standard output, instead of the table)")
	f.StringVar(&o.Compare, "compare", "", "print the changes since this file of an earlier run")
	f.StringVar(&o.Plots, "plots", "", "write plots (SVG) to this directory")
	f.StringVar(&o.Profile, "profile", "", "write CPU profiles of the daemon to this directory")
	f.StringVar(&o.CacheDir, "cache-dir", "", "the daemon's cache directory (default: its own)")
	f.StringVar(&o.Base, "base", "",
		"what the template base is: host, or debian (once carrel template get base has made it)")
	f.StringVar(&o.MicroVMKernel, "microvm-kernel", "", "directory with the kernel of virtual machines, for microvm")
	f.IntVar(&o.Idle, "idle", 500, "how many idle sandboxes to keep alive at once")
	f.IntVar(&o.Paused, "paused", 10000, "how many paused sandboxes to keep at once")
	f.IntVar(&o.Chain, "chain", 1000, "how many sandboxes to create one after the other")
	f.DurationVar(&o.For, "for", 20*time.Minute, "how long the soak lasts")
}

// samples returns how many samples a measurement takes.
func (o Options) samples(full int) int {
	if o.Quick {
		return max(3, full/10)
	}
	return full
}

// Parts returns the other processes that the bench's binary can be.
func Parts() reexec.Parts {
	parts := injectParts()
	maps.Copy(parts, tap.Parts())
	return parts
}

// measurement is a measurement with a name.
type measurement struct {
	name  string
	short string
	group string // another name, of several
	asked bool   // only when it is named
	run   func(context.Context, *session) ([]row, error)
}

// measurements returns all measurements, in order.
func measurements() []measurement {
	return []measurement{
		{name: "create", short: "create to first output, cold and warm, beside runsc and runc", run: benchCreate},
		{name: "exec", short: "round trip of a command, beside runsc and runc", run: benchExec},
		{name: "npm", short: "the same from E2B's SDK for JavaScript", run: onDaemon(benchNPM)},
		{name: "kill", short: "until nothing is left", run: onDaemon(benchKill)},
		{name: "files", short: "64 MB up and down", run: onDaemon(benchFiles)},
		{name: "pause", group: "time", short: "pause and resume, beside runsc", run: benchPause},
		{name: "fork", group: "time", short: "50 forks at once", run: onDaemon(benchFork)},
		{name: "rollback", group: "time", short: "back to a snapshot", run: onDaemon(benchRollback)},
		{name: "timeline", group: "time", short: "what 20 snapshots take on the disk", run: onDaemon(benchTimeline)},
		{name: "sim", short: "the simulated machine, beside just-bash and bash", run: alone(benchSim)},
		{name: "peer", short: "starting programs inside, beside runsc", run: benchPeer},
		{name: "build", short: "builds of templates, beside buildah; an import of 1 GB", run: benchBuild},
		{name: "built", short: "creates from templates that were built, beside the base", run: benchBuilt},
		{name: "lazy", short: "from a pull to the first command, lazily and whole", asked: true, run: benchLazy},
		{name: "burst", short: "50 creates at once, from a pool and cold", run: benchBurst},
		{name: "sustained", short: "cold creates per second, and whether they stay as fast", run: benchSustained},
		{name: "overload", short: "ten times as many creates as can be served", run: benchOverload},
		{name: "density", group: "idle", short: "many idle sandboxes (--idle N)", run: benchDensity},
		{name: "paused", short: "many paused sandboxes (--paused N)", run: onDaemon(benchPaused)},
		{name: "sleepers", short: "create and list beside 100,000 paused sandboxes", run: alone(benchSleepers)},
		{name: "wire", short: "the way out: throughput, latency, connections", run: alone(benchWire)},
		{name: "inject", short: "requests with a credential put in, beside mitmproxy", run: alone(benchInject)},
		{name: "run", short: "carrel run, beside bwrap, srt and codex", run: alone(benchRun)},
		{name: "interpreter", short: "cells of code, beside Jupyter Server and ipykernel", asked: true, run: benchInterpreter},
		{name: "microvm", short: "sandboxes in virtual machines (--microvm-kernel DIR)", asked: true, run: benchMicroVM},
		{name: "soak", short: "5 creates per second for long (--for): what grows", asked: true, run: benchSoak},
	}
}

// onDaemon makes a measurement that uses the daemon without a pool.
func onDaemon(run func(context.Context, *daemon, Options) ([]row, error)) func(context.Context, *session) ([]row, error) {
	return func(ctx context.Context, s *session) ([]row, error) {
		d, err := s.coldDaemon(ctx)
		if err != nil {
			return nil, err
		}
		return run(ctx, d, s.o)
	}
}

// alone makes a measurement that needs none of the session's daemons.
func alone(run func(context.Context, *daemon, Options) ([]row, error)) func(context.Context, *session) ([]row, error) {
	return func(ctx context.Context, s *session) ([]row, error) { return run(ctx, nil, s.o) }
}

// Help lists the measurements for people.
func Help() string {
	var b strings.Builder
	for _, m := range measurements() {
		fmt.Fprintf(&b, "  %-10s %s\n", m.name, m.short)
	}
	return b.String()
}

// chosen returns the measurements that the options name, in the order of measurements.
func (o Options) chosen() ([]measurement, error) {
	all := measurements()
	for _, name := range o.Names {
		if !slices.ContainsFunc(all, func(m measurement) bool { return m.name == name || m.group == name }) {
			return nil, &carrel.Error{Op: "bench", Kind: carrel.Invalid, Field: "NAME", Err: fmt.Errorf("there is no measurement %q", name), Hint: "there are:\n" + Help()}
		}
	}
	return slices.DeleteFunc(all, func(m measurement) bool {
		if len(o.Names) == 0 {
			return m.asked
		}
		return !slices.Contains(o.Names, m.name) && (m.group == "" || !slices.Contains(o.Names, m.group))
	}), nil
}

// Run measures and writes the results. If a measurement fails, Run reports that and makes the
// others; it returns the error at the end.
func Run(ctx context.Context, o Options) error {
	chosen, err := o.chosen()
	if err != nil {
		return err
	}
	var old *results
	if o.Compare != "" { // find errors before the measurements
		if old, err = readResults(o.Compare); err != nil {
			return err
		}
	}
	if o.Profile != "" {
		if err := os.MkdirAll(o.Profile, 0o755); err != nil {
			return err
		}
	}
	s := &session{o: o}
	defer s.close()
	if o.Smoke {
		return s.smoke(ctx)
	}
	s.results.Machine = thisMachine()
	var failed []error
	for _, m := range chosen {
		if err := s.measure(ctx, m); err != nil {
			s.logf("%s failed: %v", m.name, err)
			failed = append(failed, fmt.Errorf("%s: %w", m.name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	s.results.Machine.LoadAfter = load()
	return errors.Join(s.write(old), errors.Join(failed...))
}

// measure makes one measurement.
func (s *session) measure(ctx context.Context, m measurement) error {
	began := time.Now()
	stop := s.profile(m.name)
	rows, err := m.run(ctx, s)
	stop()
	for i := range rows {
		rows[i].Bench = m.name
	}
	s.results.Rows = append(s.results.Rows, rows...)
	s.logf("%s took %s", m.name, time.Since(began).Round(time.Second))
	return err
}

// write writes the results in every requested form.
func (s *session) write(old *results) error {
	if s.o.JSON == "-" {
		if err := s.results.encode(s.o.Out); err != nil {
			return err
		}
	} else {
		fmt.Fprintln(s.o.Out, s.results.Machine)
		printTable(s.o.Out, s.results.Rows)
		printTargets(s.o.Out, s.results.Rows)
		if old != nil {
			printChanges(s.o.Out, old, &s.results)
		}
	}
	if s.o.JSON != "" && s.o.JSON != "-" {
		if err := s.results.save(s.o.JSON); err != nil {
			return err
		}
	}
	if s.o.Plots != "" {
		return writePlots(s.o.Plots, &s.results)
	}
	return nil
}
