package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/config"
)

// daemon is a carrel serve that belongs to the bench.
type daemon struct {
	cmd      *exec.Cmd
	ended    chan struct{} // closed when the process has
	dir      string
	url, key string
	svc      carrel.Service
	tier     carrel.Tier     // of sandboxes that hold something; "" is gvisor
	groups   map[string]bool // the places of its sandboxes' cgroups; see holdings
}

// startDaemon starts a daemon in a temporary data directory and waits until it has a base template.
func startDaemon(ctx context.Context, o Options, more ...string) (*daemon, error) {
	dir, err := os.MkdirTemp("", "carrel-bench-")
	if err != nil {
		return nil, err
	}
	args := []string{"--json", "--data-dir", dir, "serve", "--listen", "127.0.0.1:0", "--log-level", "warn", "--max-sandboxes", "5000", "--max-paused", "0"}
	if o.CacheDir != "" {
		args = append(args, "--cache-dir", o.CacheDir)
	}
	if o.Base != "" {
		args = append(args, "--base", o.Base)
	}
	args = append(args, more...)
	d := &daemon{cmd: command(o.Carrel, args, o.Log), dir: dir}
	if err := d.start(); err != nil {
		return nil, fmt.Errorf("%w (build it with: make build)", err)
	}
	if err := d.waitReady(ctx); err != nil {
		d.stop()
		return nil, err
	}
	return d, nil
}

// command returns a run of a binary without a context, in a process group that a terminal's Ctrl-C
// does not reach. After an interrupt the bench must still end its sandboxes, which outlive their
// daemon.
func command(binary string, args []string, log io.Writer) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	return cmd
}

// start starts the process on a thread that lives as long as the process. The kernel ends the
// process with the thread that started it, and Go's threads come and go.
func (d *daemon) start() error {
	d.ended = make(chan struct{})
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := d.cmd.Start()
		started <- err
		if err == nil {
			_ = d.cmd.Wait()
		}
		close(d.ended)
	}()
	return <-started
}

func (d *daemon) waitReady(ctx context.Context) error {
	deadline := time.Now().Add(time.Minute)
	for {
		raw, err := os.ReadFile(filepath.Join(d.dir, "daemon.json"))
		key, keyErr := os.ReadFile(filepath.Join(d.dir, config.KeyFile))
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
	_, err = svc.GetTemplate(ctx, "base") // packs it if it is not in the cache
	return err
}

// stop kills the sandboxes and ends the daemon.
func (d *daemon) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // thousands of sandboxes take some time
	defer cancel()
	if d.svc != nil {
		for {
			page, err := d.svc.List(ctx, carrel.ListOptions{})
			if err != nil || len(page.Sandboxes) == 0 {
				break
			}
			ids := make([]carrel.ID, len(page.Sandboxes))
			for i, s := range page.Sandboxes {
				ids[i] = s.ID
			}
			d.killAll(ctx, ids)
		}
		_ = d.svc.Close()
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	<-d.ended
	_ = os.RemoveAll(d.dir)
}
