package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/internal/run/simshell"
)

// justBash is the measured peer.
const justBash = "just-bash@3.4.2"

// simTask is a script that all contestants run.
type simTask struct {
	Name   string  `json:"name"`
	Script string  `json:"script"`
	Rounds int     `json:"rounds"`
	Warm   int     `json:"warm"`
	Fresh  bool    `json:"fresh"`          // in a new machine each time
	File   string  `json:"file,omitempty"` // the ten-megabyte log, as ./big
	Want   *string `json:"want,omitempty"`

	least float64 // how many times faster than just-bash it must be
	gnu   float64 // at most this many times GNU's own time; 0: not compared
	limit float64 // microseconds, 0 for none
}

// benchSim compares the simulated machine in this process with just-bash in its own process, and
// with real bash and GNU's programs, in a new process each time.
func benchSim(ctx context.Context, _ *daemon, o Options) ([]row, error) {
	dir, err := os.MkdirTemp("", "carrel-bench-sim-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	log := filepath.Join(dir, "big")
	lines := logLines()
	if err := os.WriteFile(log, lines, 0o644); err != nil {
		return nil, err
	}
	hello := "hello\n"
	tasks := []*simTask{
		{Name: "new machine, echo hello > f; cat f", Script: "echo hello > f; cat f", Rounds: o.samples(2000), Warm: 50, Fresh: true, Want: &hello, least: 40, limit: 30},
		{Name: "the same machine, echo hello > f; cat f", Script: "echo hello > f; cat f", Rounds: o.samples(2000), Warm: 50, Want: &hello},
		{Name: "10,000 rounds of while", Script: "i=0; while [ $i -lt 10000 ]; do i=$((i+1)); done; echo $i", Rounds: o.samples(20), Warm: 1, least: 20},
		{Name: "10,000 command substitutions", Script: "for ((i=0;i<10000;i++)); do x=$(echo $i); done; echo $x", Rounds: o.samples(20), Warm: 1, least: 20},
		{Name: "grep -c, 10 MB", Script: "grep -c 'status=5[0-9][0-9]' big", File: log, Rounds: o.samples(10), Warm: 1, least: 20, gnu: 2},
		{Name: "sort -k3,3n, 10 MB", Script: "sort -k3,3n big | md5sum", File: log, Rounds: o.samples(10), Warm: 1, least: 20, gnu: 2},
		{Name: "awk group and sum, 10 MB", Script: "awk '{ n[$2] += $3 } END { for (k in n) print k, n[k] }' big | sort | md5sum", File: log, Rounds: o.samples(10), Warm: 1, least: 20, gnu: 2},
		{Name: "sed s///g, 10 MB", Script: "sed 's/user=\\([a-z]*\\)/<\\1>/g' big | md5sum", File: log, Rounds: o.samples(10), Warm: 1, least: 20, gnu: 2},
		{Name: "cut | sort | uniq -c | sort -rn, 10 MB", Script: "cut -d' ' -f2 big | sort | uniq -c | sort -rn | md5sum", File: log, Rounds: o.samples(10), Warm: 1},
		{Name: "wc, 10 MB", Script: "wc big | tr -s ' '", File: log, Rounds: o.samples(10), Warm: 1},
	}
	sb, err := newSimBench(lines)
	if err != nil {
		return nil, err
	}
	ours, gnu := map[string][]float64{}, map[string][]float64{}
	for _, t := range tasks {
		if ours[t.Name], err = sb.measure(t); err != nil {
			return nil, err
		}
		if gnu[t.Name], err = gnuTimes(ctx, dir, t); err != nil {
			return nil, err
		}
	}
	theirs, err := justBashTimes(ctx, dir, tasks)
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: just-bash is left out: %v\n", err)
	}
	var rows []row
	for _, t := range tasks {
		mine := summarise(t.Name, "ms", ours[t.Name])
		if t.limit > 0 {
			us := scaled(ours[t.Name], 1000)
			mine = fewer(t.Name, "µs", us, t.limit)
		}
		rows = append(rows, mine)
		median := summarise("", "", ours[t.Name]).Median
		if times := theirs[t.Name]; len(times) > 0 {
			ratio := summarise("", "", times).Median / median
			r := summarise("  just-bash, in its own process, times as long", "×", []float64{ratio})
			if t.least > 0 {
				r.Target, r.Met = fmt.Sprintf("≥ %g", t.least), ratio >= t.least
			}
			rows = append(rows, r)
		}
		ratio := median / summarise("", "", gnu[t.Name]).Median
		r := summarise("  as long as bash and GNU's programs, new processes", "×", []float64{ratio})
		if t.gnu > 0 {
			r.Target, r.Met = fmt.Sprintf("≤ %g", t.gnu), ratio <= t.gnu
		}
		rows = append(rows, r)
	}
	idle, err := sb.idle(o.samples(10000))
	if err != nil {
		return nil, err
	}
	crowd, err := sb.crowd(1000)
	if err != nil {
		return nil, err
	}
	rows = append(rows, idle, crowd)
	whole, err := wholeProcess(ctx, o)
	return append(rows, whole...), err
}

// logLines returns ten megabytes that look like a log, always the same.
func logLines() []byte {
	var b bytes.Buffer
	seed := uint64(88172645463325252)
	next := func(n uint64) uint64 {
		seed ^= seed << 13
		seed ^= seed >> 7
		seed ^= seed << 17
		return seed % n
	}
	names := []string{"ann", "bob", "cleo", "dan", "eve", "finn", "gus", "hal"}
	for i := 0; b.Len() < 10<<20; i++ {
		fmt.Fprintf(&b, "%06d host%d %d user=%s status=%d\n", i, next(40), next(100000), names[next(8)], 200+next(330))
	}
	return b.Bytes()
}

// scaled multiplies samples.
func scaled(in []float64, by float64) []float64 {
	out := make([]float64, len(in))
	for i, v := range in {
		out[i] = v * by
	}
	return out
}

// simBench makes machines: empty ones, and ones with the log.
type simBench struct{ plain, logged *simshell.Rig }

func newSimBench(log []byte) (*simBench, error) {
	plain, err := simshell.NewRig("", nil)
	if err != nil {
		return nil, err
	}
	logged, err := simshell.NewRig("big", log)
	return &simBench{plain, logged}, err
}

// measure runs a task here, in milliseconds.
func (sb *simBench) measure(t *simTask) ([]float64, error) {
	from := sb.plain
	if t.File != "" {
		from = sb.logged
	}
	m := from.New()
	defer func() { m.Close() }()
	var times []float64
	for i := range t.Rounds + t.Warm {
		began := time.Now()
		if t.Fresh {
			m.Close()
			m = from.New()
		}
		got, err := m.Run(t.Script)
		took := time.Since(began)
		if err != nil {
			return nil, err
		}
		if t.Want == nil {
			t.Want = &got // the others must say the same
		}
		if got != *t.Want {
			return nil, fmt.Errorf("%s: %q, want %q", t.Name, got, *t.Want)
		}
		if i >= t.Warm {
			times = append(times, ms(took))
		}
	}
	return times, nil
}

// gnuTimes runs a task in real bash.
func gnuTimes(ctx context.Context, dir string, t *simTask) ([]float64, error) {
	var times []float64
	for range min(t.Rounds, 20) {
		cmd := exec.CommandContext(ctx, "bash", "-c", t.Script)
		cmd.Dir, cmd.Env = dir, []string{"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8"}
		began := time.Now()
		out, err := cmd.Output()
		took := time.Since(began)
		if err != nil {
			return nil, fmt.Errorf("%s in real bash: %w", t.Name, err)
		}
		if string(out) != *t.Want {
			return nil, fmt.Errorf("%s: real bash says %q and we %q", t.Name, out, *t.Want)
		}
		times = append(times, ms(took))
	}
	return times, nil
}

// justBashTimes runs all tasks in just-bash.
func justBashTimes(ctx context.Context, dir string, tasks []*simTask) (map[string][]float64, error) {
	install := exec.CommandContext(ctx, "npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", dir, justBash)
	if out, err := install.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("npm install %s: %w: %.300s", justBash, err, out)
	}
	var list []simTask
	for _, t := range tasks {
		c := *t
		if c.File != "" {
			c.Rounds = min(c.Rounds, 3) // it takes its time
		} else if !c.Fresh {
			c.Rounds = min(c.Rounds, 200)
		} else {
			c.Rounds = min(c.Rounds, 500)
		}
		list = append(list, c)
	}
	file := filepath.Join(dir, "tasks.json")
	b, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, b, 0o600); err != nil {
		return nil, err
	}
	script := filepath.Join(dir, "sim.mjs")
	if err := os.WriteFile(script, simScript, 0o600); err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, "node", "--max-old-space-size=8192", script, file, dir).Output()
	if err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(out, &raw); err != nil {
		return nil, err
	}
	times := map[string][]float64{}
	for name, r := range raw {
		var list []float64
		if err := json.Unmarshal(r, &list); err != nil {
			fmt.Fprintf(os.Stderr, "bench: just-bash, %s: %s\n", name, r)
			continue
		}
		times[name] = list
	}
	return times, nil
}

// idle measures the cost of a waiting machine that has run a command.
func (sb *simBench) idle(n int) (row, error) {
	measure := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	before := measure()
	all := make([]simshell.RigMachine, n)
	for i := range all {
		all[i] = sb.plain.New()
		if _, err := all[i].Run("echo $HOME > f"); err != nil {
			return row{}, err
		}
	}
	each := float64(measure()-before) / float64(n) / 1000
	for _, m := range all {
		m.Close()
	}
	return fewer(fmt.Sprintf("%d idle machines with a file each, memory of one", n), "kB", []float64{each}, 20), nil
}

// crowd runs many scripts at once, each in its own machine.
func (sb *simBench) crowd(n int) (row, error) {
	script := "for i in {1..50}; do echo $i $((i*i)); done > t; sort -rn -k2 t | head -3 | awk '{ s += $2 } END { print s }'"
	var all sync.WaitGroup
	errs := make([]error, n)
	began := time.Now()
	for i := range n {
		all.Go(func() {
			m := sb.plain.New()
			defer m.Close()
			got, err := m.Run(script)
			if err == nil && got != "7205\n" {
				err = fmt.Errorf("a script of many says %q", got)
			}
			errs[i] = err
		})
	}
	all.Wait()
	took := time.Since(began)
	if i := slices.IndexFunc(errs, func(e error) bool { return e != nil }); i >= 0 {
		return row{}, errs[i]
	}
	return summarise(fmt.Sprintf("%d scripts at once, all ended after", n), "ms", []float64{ms(took)}), nil
}

// wholeProcess measures "carrel sim" as a process, compared with bash.
func wholeProcess(ctx context.Context, o Options) ([]row, error) {
	time1 := func(args ...string) ([]float64, error) {
		var times []float64
		for range o.samples(40) {
			cmd := exec.CommandContext(ctx, args[0], args[1:]...)
			began := time.Now()
			out, err := cmd.Output()
			if err != nil || string(out) != "hello\n" {
				return nil, fmt.Errorf("%s: %q %w", args[0], out, err)
			}
			times = append(times, ms(time.Since(began)))
		}
		return times, nil
	}
	ours, err := time1(o.Carrel, "sim", "-c", "echo hello > f; cat f")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "carrel-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	theirs, err := time1("bash", "-c", "cd "+dir+"; echo hello > f; cat f")
	if err != nil {
		return nil, err
	}
	return []row{summarise("carrel sim -c 'echo hello > f; cat f', a whole process", "ms", ours), summarise("  bash -c, the same", "ms", theirs)}, nil
}
