package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
)

// daemon is a carrel serve with its own root and port. Its control group counts its processor time
// and that of all processes it starts, even after their end.
type daemon struct {
	cmd   *exec.Cmd
	dir   string
	group string // "" where none can be made
	svc   carrel.Service
}

const groups = "/sys/fs/cgroup/cpuacct"

// start starts a daemon and waits until it answers.
func start(ctx context.Context, o options, name string) (*daemon, error) {
	dir, err := os.MkdirTemp("", "carrel-scale-")
	if err != nil {
		return nil, err
	}
	d := &daemon{dir: dir}
	group := filepath.Join(groups, fmt.Sprintf("carrel-scale-%d-%s", os.Getpid(), name))
	if os.Mkdir(group, 0o755) == nil {
		d.group = group
	}
	binary, err := filepath.Abs(o.carrel)
	if err != nil {
		return nil, err
	}
	// The shell enters the group before it becomes the daemon, so that every process is counted.
	args := []string{"-c", `[ -z "$0" ] || echo $$ > "$0/cgroup.procs"; exec "$@"`, d.group, binary, "--data-dir", dir, "serve",
		"--listen", "127.0.0.1:0", "--log-level", "error", "--max-sandboxes", "5000", "--default-tier", o.tier, "--warm", "0"}
	if o.cache != "" {
		args = append(args, "--cache-dir", o.cache)
	}
	d.cmd = exec.Command("/bin/sh", args...)
	// Not in the terminal's group: sandboxes outlive the daemon, and stop must end them.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := d.cmd.Start(); err != nil {
		d.stop()
		return nil, err
	}
	if err := d.ready(ctx); err != nil {
		d.stop()
		return nil, err
	}
	return d, nil
}

func (d *daemon) ready(ctx context.Context) error {
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		raw, err := os.ReadFile(filepath.Join(d.dir, "daemon.json"))
		key, kerr := os.ReadFile(filepath.Join(d.dir, "api-key"))
		var info struct{ URL string }
		if err != nil || kerr != nil || json.Unmarshal(raw, &info) != nil {
			continue
		}
		if d.svc, err = client.New(info.URL, strings.TrimSpace(string(key))); err != nil {
			return err
		}
		_, err = d.svc.GetTemplate(ctx, "base")
		return err
	}
	return errors.Join(errors.New("the daemon did not start in five minutes"), ctx.Err())
}

// places returns the control groups of the daemon and of these sandboxes. The groups of sandboxes
// are elsewhere and have any names; their kernels' processes tell.
func (d *daemon) places(ids []carrel.ID) []string {
	out := []string{d.group}
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range all {
		raw, _ := os.ReadFile(file) // it may just have ended
		args := strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00")
		if !slices.Contains(ids, carrel.ID(args[len(args)-1])) {
			continue
		}
		raw, _ = os.ReadFile(filepath.Join(filepath.Dir(file), "cgroup"))
		for line := range strings.Lines(string(raw)) {
			f := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if len(f) == 3 && slices.Contains(strings.Split(f[1], ","), "cpuacct") {
				if dir := filepath.Join(groups, f[2]); !slices.Contains(out, dir) {
					out = append(out, dir)
				}
			}
		}
	}
	return out
}

// cpu returns processor time in seconds: all of the daemon's, and that of these sandboxes since
// they were made.
func (d *daemon) cpu(ids ...carrel.ID) (float64, error) {
	if d.group == "" {
		return 0, errors.New("no control group of the first version counts processor time here (run it as root)")
	}
	sum := 0.0
	for _, dir := range d.places(ids) {
		raw, err := os.ReadFile(filepath.Join(dir, "cpuacct.usage"))
		if err != nil {
			return 0, err
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
		if err != nil {
			return 0, err
		}
		sum += float64(n) / 1e9
	}
	return sum, nil
}

// memory returns the memory of the daemon itself, and the memory that the kernel charges to these
// sandboxes, in MiB. Shared memory is charged to none.
func (d *daemon) memory(ids ...carrel.ID) (own, others float64) {
	raw, _ := os.ReadFile(filepath.Join(d.group, "cgroup.procs"))
	for _, pid := range strings.Fields(string(raw)) {
		own += smaps(pid, "Anonymous:")
	}
	for _, dir := range d.places(ids)[1:] {
		raw, _ := os.ReadFile(filepath.Join(strings.Replace(dir, "/cpuacct/", "/memory/", 1), "memory.usage_in_bytes"))
		n, _ := strconv.ParseFloat(strings.TrimSpace(string(raw)), 64)
		others += n / (1 << 20)
	}
	return own, others
}

// smaps returns one sum of a process's memory, in MiB.
func smaps(pid, what string) float64 {
	raw, err := os.ReadFile("/proc/" + pid + "/smaps_rollup")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == what {
			kib, _ := strconv.ParseFloat(f[1], 64)
			return kib / 1024
		}
	}
	return 0
}

// files counts the daemon's descriptors.
func (d *daemon) files() float64 {
	list, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.cmd.Process.Pid))
	return float64(len(list))
}

// tasks counts the threads of these sandboxes.
func (d *daemon) tasks(ids ...carrel.ID) float64 {
	n := 0
	for _, dir := range d.places(ids)[1:] {
		raw, _ := os.ReadFile(filepath.Join(dir, "tasks"))
		n += len(strings.Fields(string(raw)))
	}
	return float64(n)
}

// stop kills the sandboxes and ends the daemon, its keeper and the groups.
func (d *daemon) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
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
	if d.cmd != nil && d.cmd.Process != nil {
		_ = d.cmd.Process.Signal(syscall.SIGTERM)
		_ = d.cmd.Wait()
	}
	if d.group != "" { // the keeper, which waits as long as a daemon may come back
		raw, _ := os.ReadFile(filepath.Join(d.group, "cgroup.procs"))
		for _, pid := range strings.Fields(string(raw)) {
			if n, err := strconv.Atoi(pid); err == nil && n > 1 {
				_ = syscall.Kill(n, syscall.SIGTERM)
			}
		}
		for range 100 {
			if _ = filepath.WalkDir(d.group, func(p string, e os.DirEntry, err error) error {
				if err == nil && e.IsDir() {
					defer func() { _ = os.Remove(p) }()
				}
				return nil
			}); os.Remove(d.group) == nil || !exists(d.group) {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	_ = os.RemoveAll(d.dir)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
