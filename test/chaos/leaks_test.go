package chaos

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// marksOf returns the two words that tell a data directory's processes and control groups, of tier
// gvisor and of tier ns, from those of others. They come from the directory's identity.
func (t *trial) marksOf(dir string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m, ok := t.marks[dir]; ok {
		return m
	}
	var out []string
	for seen, m := range t.marks { // dir may be a disk with a data directory on it
		if strings.HasPrefix(seen, dir+"/") {
			out = append(out, m...)
		}
	}
	raw, err := os.ReadFile(filepath.Join(dir, "datadir.json"))
	var file struct {
		ID string `json:"id"`
	}
	if err != nil || json.Unmarshal(raw, &file) != nil {
		return out
	}
	for _, root := range []string{"gvisor", "ns"} {
		sum := sha256.Sum256([]byte(file.ID + "/" + root))
		out = append(out, hex.EncodeToString(sum[:8]))
	}
	if t.marks == nil {
		t.marks = map[string][]string{}
	}
	t.marks[dir] = out
	return out
}

// processesOf returns the processes whose command line, working directory, root or open files name
// a directory, or whose command line has its mark. The suite's own process is not among them.
func (t *trial) processesOf(dir string) map[int]string {
	out, marks := map[int]string{}, append(t.marksOf(dir), dir+"/", dir+"\x00")
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range all {
		pid, _ := strconv.Atoi(filepath.Base(p))
		if pid == os.Getpid() {
			continue
		}
		line, _ := os.ReadFile(p + "/cmdline") // it may just have ended
		has := func(mark string) bool { return strings.Contains(string(line), mark) }
		if slices.ContainsFunc(marks, has) || uses(p, dir) {
			out[pid] = strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return out
}

// groupsOf returns the control groups of a data directory's sandboxes.
func (t *trial) groupsOf(dir string) (out []string) {
	for _, m := range t.marksOf(dir) {
		for _, pattern := range []string{"/sys/fs/cgroup/*/carrel/" + m + "/i*",
			"/sys/fs/cgroup/*/carrel/ns-" + m + "/i*",
			"/sys/fs/cgroup/carrel/" + m + "/i*", "/sys/fs/cgroup/carrel/ns-" + m + "/i*"} {
			found, _ := filepath.Glob(pattern)
			out = append(out, found...)
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
func (t *trial) killAllOf(dir string) {
	_ = testenv.Within(context.Background(), 10*time.Second, func() error {
		left := t.processesOf(dir)
		for pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		t.thawAllOf(dir)
		if len(left) > 0 {
			return errNotYet
		}
		return nil
	})
	for _, group := range t.groupsOf(dir) {
		_ = os.Remove(group)
	}
}

// thawAllOf lets the processes of a directory's control groups go on. A daemon that dies during a
// pause leaves them frozen, and a frozen process does not take its SIGKILL.
func (t *trial) thawAllOf(dir string) {
	for _, group := range t.groupsOf(dir) {
		for file, value := range map[string]string{"freezer.state": "THAWED", "cgroup.freeze": "0"} {
			if f, err := os.OpenFile(filepath.Join(group, file), os.O_WRONLY, 0); err == nil {
				_, _ = f.WriteString(value)
				_ = f.Close()
			}
		}
	}
}

// leftovers lists what sandboxes of a data directory left on the host: control groups, mounts,
// directories, sockets.
func (t *trial) leftovers(dir string, ids []carrel.ID) (left []string) {
	mounts, _ := os.ReadFile("/proc/mounts")
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], dir+"/") {
			left = append(left, "mount "+f[1])
		}
	}
	left = append(left, t.groupsOf(dir)...)
	for _, id := range ids {
		found, _ := filepath.Glob(filepath.Join(dir, "run", "*", "*"+string(id)+"*"))
		left = append(left, found...)
	}
	for _, pattern := range []string{"sandboxes/i*", "snapshots/drafts/*", "snapshots/hot/*",
		"snapshots/trash/*"} {
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
		if left = t.leftovers(d.dir, ids); len(left) > 0 {
			return errNotYet
		}
		return nil
	})
	if len(left) > 0 {
		t.violate("left behind: %v", left)
	}
	d.terminate()
	var running map[int]string
	_ = testenv.Within(ctx, time.Minute, func() error {
		if running = t.processesOf(d.dir); len(running) > 0 {
			return errNotYet
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
			if err := svc.DeleteSnapshot(ctx, string(sn.ID)); err != nil &&
				!errors.Is(err, carrel.NotFound) {
				return fmt.Errorf("delete snapshot %s: %w", sn.ID, err)
			}
		}
		if len(page.Snapshots) == 0 {
			return nil
		}
	}
}
