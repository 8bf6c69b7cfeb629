package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// benchPeer measures what the same job costs elsewhere, in the same run: the
// machine itself, and stock runsc from the same module.
func benchPeer(ctx context.Context, d *daemon, o options) ([]row, error) {
	native, err := timeCommand(ctx, o.samples(100), "/bin/true")
	if err != nil {
		return nil, err
	}
	rows := []row{summarise("this machine: fork, exec and wait of /bin/true", "ms", native)}
	if os.Getuid() != 0 {
		return rows, nil // runsc do needs root
	}
	runsc := filepath.Join(d.dir, "runsc")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", runsc, "./bench/runsc")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build runsc: %v: %s", err, out)
	}
	stock, err := timeCommand(ctx, o.samples(20), runsc, "--ignore-cgroups", "--network=none", "do", "/bin/echo", "ready")
	if err != nil {
		return nil, err
	}
	// A loop inside, from which the cost of starting the sandbox is taken away.
	const loops = 50
	script := fmt.Sprintf("for i in $(seq %d); do /bin/true; done", loops)
	many, err := timeCommand(ctx, o.samples(10), runsc, "--ignore-cgroups", "--network=none", "do", "/bin/bash", "-c", script)
	if err != nil {
		return nil, err
	}
	none, err := timeCommand(ctx, o.samples(10), runsc, "--ignore-cgroups", "--network=none", "do", "/bin/bash", "-c", "seq 1")
	if err != nil {
		return nil, err
	}
	each := (summarise("", "", many).Median - summarise("", "", none).Median) / loops
	ours, err := insideLoop(ctx, d, o, loops, script)
	if err != nil {
		return nil, err
	}
	return append(rows,
		summarise("stock runsc do: start, echo, end", "ms", stock),
		summarise("stock runsc: /bin/true in a bash loop inside, each", "ms", []float64{each}),
		summarise("carrel: /bin/true in a bash loop inside, each", "ms", []float64{ours}),
	), nil
}

// timeCommand runs a command again and again. Its streams are pipes of our own:
// runsc gives the files it is handed to the sandbox's user.
func timeCommand(ctx context.Context, n int, name string, args ...string) ([]float64, error) {
	var times []float64
	for i := range n + 2 {
		cmd := exec.CommandContext(ctx, name, args...)
		stdin, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		start := time.Now()
		out, err := cmd.CombinedOutput()
		_ = stdin.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %v: %s", name, err, out)
		}
		if i >= 2 {
			times = append(times, ms(time.Since(start)))
		}
	}
	return times, nil
}

// insideLoop is the same loop in a sandbox of ours.
func insideLoop(ctx context.Context, d *daemon, o options, loops int, script string) (float64, error) {
	id, c, err := d.create(ctx)
	if err != nil {
		return 0, err
	}
	defer d.svc.Kill(ctx, id)
	median := func(script string) (float64, error) {
		var times []float64
		for range o.samples(10) {
			start := time.Now()
			if err := bash(ctx, c, script); err != nil {
				return 0, err
			}
			times = append(times, ms(time.Since(start)))
		}
		return summarise("", "", times).Median, nil
	}
	many, err := median(script)
	if err != nil {
		return 0, err
	}
	none, err := median("seq 1")
	return (many - none) / float64(loops), err
}
