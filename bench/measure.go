package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/carrel-dev/carrel"
)

// samples is how many samples a measurement takes.
func (o options) samples(full int) int {
	if o.quick {
		return max(3, full/10)
	}
	return full
}

// create makes a sandbox that lives long enough for any measurement.
func (d *daemon) create(ctx context.Context) (carrel.ID, carrel.Computer, error) {
	sb, err := d.svc.Create(ctx, carrel.CreateOptions{Template: "base", Tier: carrel.GVisor, Timeout: time.Hour})
	if err != nil {
		return "", nil, err
	}
	c, err := d.svc.Computer(ctx, sb.ID)
	return sb.ID, c, err
}

// echo runs a command and checks that its output came.
func echo(ctx context.Context, c carrel.Computer) error {
	res, err := c.Run(ctx, carrel.Command{Args: []string{"/bin/echo", "ready"}})
	if err == nil && string(res.Stdout) != "ready\n" {
		err = fmt.Errorf("unexpected output %q", res.Stdout)
	}
	return err
}

// bash runs a script that must succeed.
func bash(ctx context.Context, c carrel.Computer, script string) error {
	res, err := c.Run(ctx, carrel.Command{Args: []string{"/bin/bash", "-c", script}})
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("bash -c %q: exit status %d: %s", script, res.ExitCode, res.Stderr)
	}
	return err
}

// benchCreate measures from the create request to the first command's output.
func benchCreate(ctx context.Context, d *daemon, o options) ([]row, error) {
	var whole, created []float64
	for i := range o.samples(40) + 2 {
		start := time.Now()
		id, c, err := d.create(ctx)
		if err != nil {
			return nil, err
		}
		made := time.Since(start)
		if err := echo(ctx, c); err != nil {
			return nil, err
		}
		if i >= 2 { // the first ones warm the page cache
			whole, created = append(whole, ms(time.Since(start))), append(created, ms(made))
		}
		if err := d.svc.Kill(ctx, id); err != nil {
			return nil, err
		}
	}
	return []row{
		fewer("cold create → first command's output", "ms", whole, 100),
		summarise("  of which until create returned", "ms", created),
	}, nil
}

// benchExec measures the round trip of true over a kept connection.
func benchExec(ctx context.Context, d *daemon, o options) ([]row, error) {
	id, c, err := d.create(ctx)
	if err != nil {
		return nil, err
	}
	defer d.svc.Kill(ctx, id)
	var times []float64
	for i := range o.samples(200) + 5 {
		start := time.Now()
		res, err := c.Run(ctx, carrel.Command{Args: []string{"/bin/true"}})
		if err != nil || res.ExitCode != 0 {
			return nil, fmt.Errorf("true: %+v %w", res, err)
		}
		if i >= 5 {
			times = append(times, ms(time.Since(start)))
		}
	}
	return []row{fewer("exec round trip of true, Go client", "ms", times, 8)}, nil
}

// benchKill measures until kill returned.
func benchKill(ctx context.Context, d *daemon, o options) ([]row, error) {
	var times []float64
	for range o.samples(30) {
		id, c, err := d.create(ctx)
		if err != nil {
			return nil, err
		}
		if err := echo(ctx, c); err != nil {
			return nil, err
		}
		start := time.Now()
		if err := d.svc.Kill(ctx, id); err != nil {
			return nil, err
		}
		times = append(times, ms(time.Since(start)))
	}
	return []row{fewer("kill", "ms", times, 15)}, nil
}

// benchFiles measures a 64 MB upload and download.
func benchFiles(ctx context.Context, d *daemon, o options) ([]row, error) {
	id, c, err := d.create(ctx)
	if err != nil {
		return nil, err
	}
	defer d.svc.Kill(ctx, id)
	const size = 64 << 20
	block := make([]byte, size)
	for i := range block {
		block[i] = byte(i * 7 >> 3)
	}
	var up, down []float64
	for range o.samples(10) + 1 {
		start := time.Now()
		if _, err := c.Files("").Write(ctx, "big", bytes.NewReader(block)); err != nil {
			return nil, err
		}
		up = append(up, size/1e6/time.Since(start).Seconds())
		start = time.Now()
		r, err := c.Files("").Read(ctx, "big")
		if err != nil {
			return nil, err
		}
		n, err := io.Copy(io.Discard, r)
		_ = r.Close()
		if err != nil || n != size {
			return nil, fmt.Errorf("download: %d bytes, %v", n, err)
		}
		down = append(down, size/1e6/time.Since(start).Seconds())
	}
	return []row{
		more("64 MB upload", "MB/s", up[1:], 150),
		more("64 MB download", "MB/s", down[1:], 150),
	}, nil
}

// benchNPM measures the exec round trip from E2B's npm SDK.
func benchNPM(ctx context.Context, d *daemon, o options) ([]row, error) {
	if out, err := exec.CommandContext(ctx, "npm", "--prefix", "demo", "ci", "--silent").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("npm ci: %v: %s", err, out)
	}
	cmd := exec.CommandContext(ctx, "node", "bench/exec.mjs", fmt.Sprint(o.samples(200)))
	cmd.Env = append(os.Environ(), "E2B_API_URL="+d.url, "E2B_SANDBOX_URL="+d.url, "E2B_API_KEY="+d.key)
	cmd.Stderr = os.Stderr
	raw, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var got struct{ Create, Exec []float64 }
	if err := json.Unmarshal(raw, &got); err != nil {
		return nil, err
	}
	return []row{
		fewer("exec round trip of true, npm SDK", "ms", got.Exec, 12),
		fewer("cold create → first command's output, npm SDK", "ms", got.Create, 100),
	}, nil
}

// benchIdle keeps many sandboxes alive and measures what each costs.
func benchIdle(ctx context.Context, d *daemon, o options) ([]row, error) {
	n := o.idle
	if o.quick {
		n = min(n, 20)
	}
	before := proportionalMemory(d.cmd.Process.Pid)
	var creates []float64
	ids := make([]carrel.ID, 0, n)
	computers := make([]carrel.Computer, 0, n)
	defer func() {
		for _, id := range ids {
			_ = d.svc.Kill(ctx, id)
		}
	}()
	for range n {
		start := time.Now()
		id, c, err := d.create(ctx)
		if err != nil {
			return nil, fmt.Errorf("sandbox %d: %w", len(ids)+1, err)
		}
		creates = append(creates, ms(time.Since(start)))
		ids, computers = append(ids, id), append(computers, c)
	}
	time.Sleep(3 * time.Second) // let them come to rest
	each := float64(proportionalMemory(d.cmd.Process.Pid)) / float64(n) / (1 << 20)
	var execs []float64
	for _, c := range computers {
		start := time.Now()
		if err := echo(ctx, c); err != nil {
			return nil, err
		}
		execs = append(execs, ms(time.Since(start)))
	}
	label := fmt.Sprintf("with %d idle sandboxes: ", n)
	return []row{
		fewer(label+"memory of each, daemon's share included", "MiB", []float64{each}, 25),
		summarise("  the daemon alone, before any", "MiB", []float64{float64(before) / (1 << 20)}),
		fewer(label+"exec in each", "ms", execs, 25),
		summarise(label+"create", "ms", creates),
	}, nil
}
