// Command bench measures Carrel as its users meet it: whole processes, the real
// daemon with its API key on and its records durable, medians and 95th percentiles,
// the machine named beside them.
//
//	go run ./bench [-quick] [-only create,exec] [-json FILE]
//
// It needs bin/carrel (make build). The targets printed beside the figures are
// those the project set itself; a shared machine misses some on a bad day, so a
// missed target is marked and does not fail the run.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/internal/linux/tap"
	"github.com/carrel-dev/carrel/internal/reexec"
)

// options are the command's flags.
type options struct {
	carrel string
	cache  string
	quick  bool
	only   string
	json   string
	idle   int
	paused int
}

func main() {
	if reexec.Run(tap.Parts(), injectParts()) {
		return
	}
	var o options
	flag.StringVar(&o.carrel, "carrel", "bin/carrel", "the binary to measure")
	flag.StringVar(&o.cache, "cache-dir", "", "cache directory, so that the base template is not packed again (default: the daemon's)")
	flag.BoolVar(&o.quick, "quick", false, "few samples: a smoke test")
	flag.StringVar(&o.only, "only", "", "comma list of measurements: create,exec,kill,files,time,npm,peer,idle,paused,wire,inject,run,sim")
	flag.StringVar(&o.json, "json", "", "also write the rows to this file as JSON lines")
	flag.IntVar(&o.idle, "idle", 200, "how many idle sandboxes to keep alive at once")
	flag.IntVar(&o.paused, "paused", 10000, "how many paused sandboxes to keep at once")
	flag.Parse()
	if err := run(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run starts a daemon, measures and prints.
func run(ctx context.Context, o options) error {
	var d *daemon
	if o.only != "run" && o.only != "sim" {
		var err error
		if d, err = startDaemon(ctx, o); err != nil {
			return err
		}
		defer d.stop()
	}
	fmt.Println(machine())
	var rows []row
	for _, m := range measurements {
		if o.only != "" && !slices.Contains(strings.Split(o.only, ","), m.name) {
			continue
		}
		started := time.Now()
		got, err := m.run(ctx, d, o)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		fmt.Fprintf(os.Stderr, "bench: %s took %s\n", m.name, time.Since(started).Round(time.Second))
		rows = append(rows, got...)
	}
	printTable(rows)
	return writeJSON(o.json, rows)
}

// measurements are what can be measured, in order.
var measurements = []struct {
	name string
	run  func(context.Context, *daemon, options) ([]row, error)
}{
	{"create", benchCreate},
	{"exec", benchExec},
	{"kill", benchKill},
	{"files", benchFiles},
	{"time", benchTime},
	{"npm", benchNPM},
	{"sim", benchSim},
	{"peer", benchPeer},
	{"idle", benchIdle},
	{"paused", benchPaused},
	{"wire", benchWire},
	{"inject", benchInject},
	{"run", benchRun},
}

// row is one line of the table.
type row struct {
	Name    string  `json:"name"`
	Unit    string  `json:"unit"`
	Samples int     `json:"samples"`
	Median  float64 `json:"median"`
	P95     float64 `json:"p95"`
	Target  string  `json:"target,omitempty"`
	Met     bool    `json:"met"`
}

// fewer makes a row whose target is a median of at most limit.
func fewer(name, unit string, samples []float64, limit float64) row {
	r := summarise(name, unit, samples)
	r.Target, r.Met = fmt.Sprintf("≤ %g", limit), r.Median <= limit
	return r
}

// more makes a row whose target is a median of at least limit.
func more(name, unit string, samples []float64, limit float64) row {
	r := summarise(name, unit, samples)
	slices.Sort(samples)
	r.P95 = samples[len(samples)*5/100] // for rates the bad end is the low one
	r.Target, r.Met = fmt.Sprintf("≥ %g", limit), r.Median >= limit
	return r
}

func summarise(name, unit string, samples []float64) row {
	s := slices.Sorted(slices.Values(samples))
	return row{Name: name, Unit: unit, Samples: len(s), Median: s[len(s)/2], P95: s[min(len(s)-1, len(s)*95/100)]}
}

func printTable(rows []row) {
	fmt.Printf("\n| what | median | p95 | unit | target | samples |\n|---|---|---|---|---|---|\n")
	for _, r := range rows {
		mark := ""
		if r.Target != "" && !r.Met {
			mark = " (missed)"
		}
		format := "| %s | %.1f | %.1f | %s | %s%s | %d |\n"
		if r.Unit == "×" {
			format = "| %s | %.3f | %.3f | %s | %s%s | %d |\n"
		}
		fmt.Printf(format, r.Name, r.Median, r.P95, r.Unit, r.Target, mark, r.Samples)
	}
}

func writeJSON(name string, rows []row) error {
	if name == "" {
		return nil
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	enc := json.NewEncoder(f)
	for _, r := range rows {
		if err := enc.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// ms is a duration in milliseconds.
func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
