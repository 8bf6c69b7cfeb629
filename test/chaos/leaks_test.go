package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// processesOf returns the processes whose command line, working directory, root or open files name
// a directory. The suite's own process is not among them.
func processesOf(dir string) map[int]string {
	out := map[int]string{}
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range all {
		pid, _ := strconv.Atoi(filepath.Base(p))
		if pid == os.Getpid() {
			continue
		}
		line, _ := os.ReadFile(p + "/cmdline") // it may just have ended
		text := strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))
		if strings.Contains(string(line), dir) || uses(p, dir) {
			out[pid] = text
		}
	}
	return out
}

// uses reports whether a process has something below dir open.
func uses(proc, dir string) bool {
	links := []string{proc + "/cwd", proc + "/root", proc + "/exe"}
	fds, _ := os.ReadDir(proc + "/fd")
	for _, fd := range fds {
		links = append(links, proc+"/fd/"+fd.Name())
	}
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && strings.HasPrefix(to, dir+"/") {
			return true
		}
	}
	return false
}

// killAllOf ends the processes that use a directory. They are the trial's own: no other process
// knows the directory.
func killAllOf(dir string) {
	_ = testenv.Within(context.Background(), 10*time.Second, func() error {
		left := processesOf(dir)
		for pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if len(left) > 0 {
			return errors.New("not yet")
		}
		return nil
	})
}

// leftovers lists what sandboxes of a data directory left on the host: control groups, mounts,
// directories, sockets.
func leftovers(dir string, ids []carrel.ID) (left []string) {
	mounts, _ := os.ReadFile("/proc/mounts")
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], dir+"/") {
			left = append(left, "mount "+f[1])
		}
	}
	for _, id := range ids {
		for _, pattern := range []string{"/sys/fs/cgroup/*/carrel/*" + string(id) + "*", "/sys/fs/cgroup/*/carrel/*/*" + string(id) + "*",
			"/sys/fs/cgroup/carrel/*" + string(id) + "*", filepath.Join(dir, "sandboxes", string(id)), filepath.Join(dir, "run", "*", "*"+string(id)+"*")} {
			found, _ := filepath.Glob(pattern)
			left = append(left, found...)
		}
	}
	for _, pattern := range []string{"sandboxes/i*", "snapshots/drafts/*", "snapshots/hot/*", "snapshots/trash/*"} {
		found, _ := filepath.Glob(filepath.Join(dir, pattern))
		left = append(left, found...)
	}
	return left
}

// finish kills everything in a daemon, deletes every snapshot, stops the daemon, and fails for
// everything that is left.
func (t *trial) finish(d *server) {
	t.calm.Store(false)
	ctx, cancel := context.WithTimeout(t.ctx, 3*time.Minute)
	defer cancel()
	listed, err := listAll(ctx, d.svc)
	if err != nil {
		t.violate("at the end: %v", err)
		return
	}
	for id := range listed {
		if err := d.svc.Kill(ctx, id); err != nil {
			t.violate("at the end: kill %s: %v", id, err)
		}
	}
	if err := t.deleteAll(ctx, d.svc); err != nil {
		t.violate("at the end: %v", err)
	}
	t.j.mu.Lock()
	ids := t.j.everyID
	t.j.mu.Unlock()
	var left []string
	_ = testenv.Within(ctx, time.Minute, func() error { // some need a moment to end
		if left = leftovers(d.dir, ids); len(left) > 0 {
			return errors.New("not yet")
		}
		return nil
	})
	if len(left) > 0 {
		t.violate("left behind: %v", left)
	}
	d.terminate()
	var running map[int]string
	_ = testenv.Within(ctx, time.Minute, func() error {
		if running = processesOf(d.dir); len(running) > 0 {
			return errors.New("not yet")
		}
		return nil
	})
	for pid, line := range running {
		t.violate("process %d runs although its daemon has ended with nothing in it: %s", pid, line)
	}
}

// deleteAll deletes every snapshot.
func (t *trial) deleteAll(ctx context.Context, svc carrel.Service) error {
	for {
		page, err := svc.ListSnapshots(ctx, carrel.SnapshotListOptions{Auto: true, Limit: 100})
		if err != nil {
			return err
		}
		for _, sn := range page.Snapshots {
			if err := svc.DeleteSnapshot(ctx, string(sn.ID)); err != nil && !errors.Is(err, carrel.NotFound) {
				return fmt.Errorf("delete snapshot %s: %w", sn.ID, err)
			}
		}
		if len(page.Snapshots) == 0 {
			return nil
		}
	}
}
