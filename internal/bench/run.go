package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// runBench is the set-up of the measurements of "carrel run".
type runBench struct {
	o      Options
	carrel string // the binary
	dir    string // contains everything; not in /tmp, because each box has its own
	work   string // the project
	env    []string
}

// benchRun measures the cost of a box for one command: its start compared with its peers', what it
// leaves behind, and work in it compared with the same work outside. It needs no daemon.
func benchRun(ctx context.Context, _ *daemon, o Options) ([]row, error) {
	b, err := newRunBench(o)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(b.dir)
	var rows []row
	for _, m := range []func(context.Context) ([]row, error){b.starts, b.allowed, b.options, b.leaks, b.inside, b.compile, b.status, b.files} {
		got, err := m(ctx)
		rows = append(rows, got...)
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// newRunBench makes a home with an empty project in it.
func newRunBench(o Options) (*runBench, error) {
	program, err := os.ReadFile(o.Carrel)
	if err != nil {
		return nil, fmt.Errorf("%w (build it with: make build)", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(cache, "carrel-bench-run-")
	if err != nil {
		return nil, err
	}
	b := &runBench{o: o, carrel: filepath.Join(dir, "carrel"), dir: dir, work: filepath.Join(dir, "home", "project")}
	b.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(dir, "home"), "TMPDIR=" + filepath.Join(dir, "tmp"), "TERM=dumb", "LANG=C.UTF-8", "USER=" + os.Getenv("USER")}
	for _, d := range []string{b.work, filepath.Join(dir, "tmp")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	// A box in a box can find this copy, and the copy does not change during the measurements.
	return b, os.WriteFile(b.carrel, program, 0o755)
}

// contestant is one way to run a command.
type contestant struct {
	name   string
	prefix []string
	env    []string // more of it
	rounds int      // it takes part in one round of this many; 0 is all
	times  []float64
}

// once runs a command and returns how long it took.
func (b *runBench) once(ctx context.Context, c *contestant, line ...string) (time.Duration, error) {
	full := append(slices.Clone(c.prefix), line...)
	cmd := exec.CommandContext(ctx, full[0], full[1:]...)
	cmd.Dir, cmd.Env = b.work, append(slices.Clone(b.env), c.env...)
	// Its output goes to a file, which costs it nothing; its other streams are /dev/null.
	said, err := os.Create(filepath.Join(b.dir, "said"))
	if err != nil {
		return 0, err
	}
	defer said.Close()
	cmd.Stderr = said
	start := time.Now()
	err = cmd.Run()
	took := time.Since(start)
	if err != nil {
		text, _ := os.ReadFile(said.Name())
		return 0, fmt.Errorf("%s: %q: %w: %.400s", c.name, line, err, text)
	}
	return took, nil
}

// race runs the same command in each way, many times, one way after another. Each round begins with
// another way, so that a busy minute of the machine affects all of them.
func (b *runBench) race(ctx context.Context, rounds int, list []*contestant, line ...string) error {
	for _, c := range list {
		c.times = nil
		if _, err := b.once(ctx, c, line...); err != nil { // warms the page cache
			return err
		}
	}
	for i := range rounds {
		for k := range list {
			c := list[(i+k)%len(list)]
			if c.rounds > 1 && i%c.rounds != 0 {
				continue
			}
			took, err := b.once(ctx, c, line...)
			if err != nil {
				return err
			}
			c.times = append(c.times, ms(took))
		}
	}
	return nil
}

// starts compares the times until a command that does nothing has ended.
func (b *runBench) starts(ctx context.Context) ([]row, error) {
	bare := &contestant{name: "bare"}
	ours := &contestant{name: "carrel run", prefix: []string{b.carrel, "run", "--"}}
	list := append([]*contestant{bare, ours}, b.peers(ctx)...)
	var rows []row
	for _, line := range [][]string{{"true"}, {"python3", "-c", "1"}} {
		rounds := b.o.samples(200)
		if line[0] != "true" {
			rounds = b.o.samples(60) // each takes a second in all
		}
		if err := b.race(ctx, rounds, list, line...); err != nil {
			return rows, err
		}
		what := fmt.Sprintf("%q", line[0])
		for _, c := range list {
			r := summarise(c.name+": "+what, "ms", c.times)
			if c == ours && line[0] == "true" {
				r = fewer(c.name+": "+what, "ms", c.times, 10)
			}
			rows = append(rows, r)
		}
		for _, c := range list[2:] {
			target, isBwrap := map[string]float64{"srt": 25, "codex sandbox, read-only": 3, "codex sandbox, workspace-write": 3}[c.name], c.name == "bwrap"
			switch {
			case line[0] != "true":
				rows = append(rows, ratio(what+": "+c.name+" / carrel run", c.times, ours.times))
			case isBwrap:
				rows = append(rows, atMost(ratio(what+": carrel run / bwrap", ours.times, c.times), 2.5).key("run.true/bwrap"))
			default:
				rows = append(rows, atLeast(ratio(what+": "+c.name+" / carrel run", c.times, ours.times), target))
			}
		}
	}
	return rows, nil
}

// options compares different flags for a box.
func (b *runBench) options(ctx context.Context) ([]row, error) {
	run := func(flags ...string) []string { return append(append([]string{b.carrel, "run"}, flags...), "--") }
	list := []*contestant{
		{name: "carrel run", prefix: run()},
		{name: "carrel run --report", prefix: run("--report", filepath.Join(b.dir, "report.json"))},
		{name: "carrel run --light", prefix: run("--light")},
		{name: "carrel run --overlay", prefix: run("--overlay")},
		{name: "carrel run --memory 1G --pids 100", prefix: run("--memory", "1G", "--pids", "100")},
		{name: "carrel run --allow example.com", prefix: run("--allow", "example.com")},
		{name: "carrel run carrel run --light", prefix: append(run(), run("--light")...)},
	}
	var works []*contestant
	for _, c := range list {
		if _, err := b.once(ctx, c, "true"); err != nil {
			fmt.Fprintf(os.Stderr, "bench: left out: %v\n", err)
			continue
		}
		works = append(works, c)
	}
	if err := b.race(ctx, b.o.samples(50), works, "true"); err != nil {
		return nil, err
	}
	var rows []row
	for _, c := range works {
		rows = append(rows, summarise(c.name+", beside each other: \"true\"", "ms", c.times))
	}
	return rows, nil
}

// write makes a file and its directories.
func write(name, text string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(f, text); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
