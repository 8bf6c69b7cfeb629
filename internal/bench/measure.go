package bench

import (
	"bytes"
	"context"
	_ "embed" // the programs for Node.js
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/carrel-dev/carrel"
)

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

// bash runs a script. It must succeed.
func bash(ctx context.Context, c carrel.Computer, script string) error {
	res, err := c.Run(ctx, carrel.Command{Args: []string{"/bin/bash", "-c", script}})
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("bash -c %q: exit status %d: %s", script, res.ExitCode, res.Stderr)
	}
	return err
}

// benchKill measures the time until kill returns.
func benchKill(ctx context.Context, d *daemon, o Options) ([]row, error) {
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
	return []row{fewer("kill", "ms", times, 15).key("kill")}, nil
}

// benchFiles measures a 64 MB upload and download.
func benchFiles(ctx context.Context, d *daemon, o Options) ([]row, error) {
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
		more("64 MB upload", "MB/s", up[1:], 150).key("files.up"),
		more("64 MB download", "MB/s", down[1:], 150).key("files.down"),
	}, nil
}

// The programs for Node.js.
var (
	//go:embed exec.mjs
	execScript []byte
	//go:embed sim.mjs
	simScript []byte
)

// benchNPM measures the exec round trip from E2B's npm SDK.
func benchNPM(ctx context.Context, d *daemon, o Options) ([]row, error) {
	install, dir := []string{"ci"}, "demo" // the version of E2B's own tests
	if _, err := os.Stat("demo/package-lock.json"); err != nil {
		install, dir = []string{"install", "--no-audit", "--no-fund", "e2b"}, d.dir
	}
	if out, err := exec.CommandContext(ctx, "npm", append([]string{"--silent", "--prefix", dir}, install...)...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("npm %s: %v: %s", install[0], err, out)
	}
	script := filepath.Join(d.dir, "exec.mjs")
	if err := os.WriteFile(script, execScript, 0o600); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "node", script, fmt.Sprint(o.samples(200)), dir)
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
		fewer("exec round trip of true, npm SDK", "ms", got.Exec, 8).key("exec.npm"),
		summarise("cold create → first command's output, npm SDK", "ms", got.Create).key("create.npm"),
	}, nil
}
