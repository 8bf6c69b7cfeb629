package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
)

// daemon is a carrel serve of the bench's own.
type daemon struct {
	cmd      *exec.Cmd
	dir      string
	url, key string
	svc      carrel.Service
}

// startDaemon starts one in a temporary data directory and waits until it has a
// base template.
func startDaemon(ctx context.Context, o options, more ...string) (*daemon, error) {
	dir, err := os.MkdirTemp("", "carrel-bench-")
	if err != nil {
		return nil, err
	}
	args := []string{"--data-dir", dir, "serve", "--listen", "127.0.0.1:0", "--log-level", "warn", "--max-sandboxes", "5000", "--max-paused", "0"}
	if o.cache != "" {
		args = append(args, "--cache-dir", o.cache)
	}
	args = append(args, more...)
	d := &daemon{cmd: exec.CommandContext(ctx, o.carrel, args...), dir: dir}
	d.cmd.Stderr = os.Stderr
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w (build it with: make build)", err)
	}
	if err := d.waitReady(ctx); err != nil {
		d.stop()
		return nil, err
	}
	return d, nil
}

func (d *daemon) waitReady(ctx context.Context) error {
	deadline := time.Now().Add(time.Minute)
	for {
		raw, err := os.ReadFile(filepath.Join(d.dir, "daemon.json"))
		key, keyErr := os.ReadFile(filepath.Join(d.dir, "api-key"))
		var info struct{ URL string }
		if err == nil && keyErr == nil && json.Unmarshal(raw, &info) == nil {
			d.url, d.key = info.URL, strings.TrimSpace(string(key))
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the daemon did not start in a minute")
		}
		time.Sleep(20 * time.Millisecond)
	}
	svc, err := client.New(d.url, d.key)
	if err != nil {
		return err
	}
	d.svc = svc
	_, err = svc.GetTemplate(ctx, "base") // packs it when it is not in the cache
	return err
}

// stop kills the sandboxes and ends the daemon.
func (d *daemon) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if d.svc != nil {
		for {
			page, err := d.svc.List(ctx, carrel.ListOptions{})
			if err != nil || len(page.Sandboxes) == 0 {
				break
			}
			for _, s := range page.Sandboxes {
				_ = d.svc.Kill(ctx, s.ID)
			}
		}
		_ = d.svc.Close()
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	_ = d.cmd.Wait()
	_ = os.RemoveAll(d.dir)
}

// machine describes this machine in one line.
func machine() string {
	model := "unknown processor"
	if raw, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(raw)) {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
				model = strings.TrimSpace(v)
				break
			}
		}
	}
	var u syscall.Utsname
	_ = syscall.Uname(&u)
	release := make([]byte, 0, len(u.Release))
	for _, c := range u.Release {
		if c == 0 {
			break
		}
		release = append(release, byte(c))
	}
	return fmt.Sprintf("machine: %d cores (%s), %d MiB memory, Linux %s", runtime.NumCPU(), model, memTotal()>>20, release)
}

func memTotal() int64 {
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	return kilobytes(string(raw), "MemTotal:")
}

// kilobytes reads a "Name:  N kB" line as bytes.
func kilobytes(text, name string) int64 {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n << 10
		}
	}
	return 0
}

// daemonMemory is the resident memory of one process.
func daemonMemory(pid int) int64 {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	return kilobytes(string(raw), "VmRSS:")
}

// proportionalMemory sums the proportional set sizes of a process and everything
// below it: shared pages count once over all who share them.
func proportionalMemory(pid int) int64 {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		raw, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		text := string(raw)
		fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
		child, _ := strconv.Atoi(strings.Split(name, "/")[2])
		parent, _ := strconv.Atoi(fields[1])
		children[parent] = append(children[parent], child)
	}
	var sum int64
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		queue = append(queue, children[queue[0]]...)
		if raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", queue[0])); err == nil {
			sum += kilobytes(string(raw), "Pss:")
		}
	}
	return sum
}
