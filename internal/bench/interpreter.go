package bench

import (
	"context"
	_ "embed" // the program for Jupyter Server
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client/interpreter"
)

const (
	interpreterTemplate = "code-interpreter-v1"
	interpreterPool     = 4 // sandboxes that are kept ready
	interpreterRest     = 20 * time.Second
)

// jupyterPackages are the peer: Jupyter Server with the kernel and the modules of our template.
var jupyterPackages = []string{"jupyter-server", "ipykernel", "numpy", "pandas", "matplotlib"}

//go:embed jupyter.py
var jupyterProgram string

// benchInterpreter measures the code interpreter beside Jupyter Server with ipykernel on this
// machine, without a wall. Both have numpy, pandas and matplotlib in memory.
func benchInterpreter(ctx context.Context, s *session) ([]row, error) {
	d, err := s.daemon(ctx, "--warm", fmt.Sprint(2*interpreterPool), "--warm-floor",
		fmt.Sprintf("%s=%d", interpreterTemplate, interpreterPool))
	if err != nil {
		return nil, err
	}
	defer d.stop()
	// To make the template may take longer than the pool is waited for.
	if _, err := d.svc.PullTemplate(ctx, interpreterTemplate, "", nil); err != nil {
		return nil, err
	}
	if err := d.waitWarm(ctx, interpreterPool); err != nil {
		return nil, err
	}
	if err := sleep(ctx, interpreterRest); err != nil {
		return nil, err
	}
	c := &cells{d: d, before: d.owned()}
	defer func() { d.killAll(ctx, c.ids) }()
	for range s.o.samples(12) {
		if err := c.first(ctx); err != nil {
			return nil, err
		}
		if err := d.waitWarm(ctx, interpreterPool); err != nil {
			return nil, err
		}
	}
	last := c.all[len(c.all)-1]
	for range s.o.samples(100) {
		took, err := onePlusOne(ctx, last)
		if err != nil {
			return nil, err
		}
		c.warm = append(c.warm, ms(took))
	}
	if err := sleep(ctx, interpreterRest); err != nil {
		return nil, err
	}
	each := float64(d.owned()-c.before) / float64(len(c.ids)) / (1 << 20)
	rows := []row{
		fewer("code interpreter: create → first result", "ms", c.firsts, 120).key("interpreter.first"),
		fewer("code interpreter: 1+1, warm", "ms", c.warm, 20).key("interpreter.warm"),
		fewer("code interpreter: memory of each that ran a cell and is idle", "MiB", []float64{each},
			90).key("interpreter.memory"),
	}
	peer, err := jupyterServer(ctx, s.o.samples(5), s.o.samples(100))
	if err != nil {
		s.logf("Jupyter Server is left out: %v", err)
		return rows, nil
	}
	return append(rows,
		summarise("Jupyter Server and ipykernel on this machine: start → first result", "ms", peer.First),
		ratio("  ÷ ours", peer.First, c.firsts).key("interpreter.first/jupyter"),
		summarise("  1+1, warm", "ms", peer.Warm),
		ratio("  ÷ ours", peer.Warm, c.warm).key("interpreter.warm/jupyter"),
		summarise("  memory of server and kernel, idle", "MiB", peer.Memory)), nil
}

// owned is all memory of the daemon's sandboxes, shared pages counted once.
func (d *daemon) owned() int64 {
	if n, ok := d.charged(); ok {
		return n
	}
	return d.proportionalMemory()
}

// cells are sandboxes that ran a cell.
type cells struct {
	d            *daemon
	before       int64 // memory of the pool alone
	ids          []carrel.ID
	all          []*interpreter.Interpreter
	firsts, warm []float64
}

// first creates a sandbox and times its first result.
func (c *cells) first(ctx context.Context) error {
	start := time.Now()
	sb, err := c.d.svc.Create(ctx, carrel.CreateOptions{Template: interpreterTemplate,
		Tier: carrel.GVisor, Timeout: time.Hour})
	if err != nil {
		return err
	}
	c.ids = append(c.ids, sb.ID)
	computer, err := c.d.svc.Computer(ctx, sb.ID)
	if err != nil {
		return err
	}
	in := interpreter.New(computer, sb.AccessToken)
	if _, err := onePlusOne(ctx, in); err != nil {
		return err
	}
	c.firsts, c.all = append(c.firsts, ms(time.Since(start))), append(c.all, in)
	return nil
}

// onePlusOne times a cell.
func onePlusOne(ctx context.Context, in *interpreter.Interpreter) (time.Duration, error) {
	start := time.Now()
	e, err := in.Run(ctx, interpreter.Cell{Code: "1+1"}, nil)
	if err == nil && e.Text() != "2" {
		err = fmt.Errorf("1+1 is %q (%v)", e.Text(), e.Failure)
	}
	return time.Since(start), err
}

// jupyterTimes are what jupyter.py prints.
type jupyterTimes struct {
	First, Warm []float64 // ms
	Memory      []float64 // MiB
}

// jupyterServer installs Jupyter Server into the user's cache and measures it.
func jupyterServer(ctx context.Context, starts, cells int) (t jupyterTimes, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return t, err
	}
	dir := filepath.Join(cache, "carrel-bench", "jupyter")
	python := filepath.Join(dir, "bin", "python")
	if _, err := os.Stat(python); err != nil {
		if out, err := exec.CommandContext(ctx, "python3", "-m", "venv", dir).CombinedOutput(); err != nil {
			return t, fmt.Errorf("python3 -m venv: %w: %.300s", err, out)
		}
	}
	args := append([]string{"-m", "pip", "install", "--quiet"}, jupyterPackages...)
	if out, err := exec.CommandContext(ctx, python, args...).CombinedOutput(); err != nil {
		return t, fmt.Errorf("pip install: %w: %.300s", err, out)
	}
	cmd := exec.CommandContext(ctx, python, "-c", jupyterProgram, fmt.Sprint(starts), fmt.Sprint(cells))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &t)
	}
	return t, err
}
