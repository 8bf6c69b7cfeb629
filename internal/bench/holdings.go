package bench

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// holdings counts the resources of a daemon and its sandboxes on this machine. It counts only the
// daemon's own, because other programs may run here.
type holdings map[string]int

// The kinds of holdings, as reported.
const (
	heldProcesses   = "processes"
	heldFiles       = "files in the data directory"
	heldDirectories = "sandboxes' directories"
	heldCgroups     = "cgroups"
	heldMounts      = "mounts"
	heldSpaces      = "network namespaces"
	heldDescriptors = "descriptors of the daemon"
)

// holdings counts everything at once, when the kernels that are started ahead are there.
func (d *daemon) holdings() holdings {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		st, err := d.svc.Pool(context.Background())
		if err != nil || st.Blanks == nil || st.Blanks.Ready == st.Blanks.Keep {
			break
		}
	}
	h := holdings{}
	spaces := map[string]bool{}
	cgroups := map[string]bool{}
	for _, pid := range d.processes() {
		h[heldProcesses]++
		proc := "/proc/" + strconv.Itoa(pid)
		if ns, err := os.Readlink(proc + "/ns/net"); err == nil {
			spaces[ns] = true
		}
		raw, _ := os.ReadFile(proc + "/cgroup")
		for line := range strings.Lines(string(raw)) {
			cgroups[strings.TrimSpace(line)] = true
		}
	}
	h[heldSpaces] = len(spaces)
	h[heldCgroups] = d.countCgroups(cgroups)
	fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.cmd.Process.Pid))
	h[heldDescriptors] = len(fds)
	mounts, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", d.cmd.Process.Pid))
	h[heldMounts] = strings.Count(string(mounts), "\n")
	_ = filepath.WalkDir(d.dir, func(p string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			h[heldFiles]++
		}
		if err == nil && e.IsDir() && filepath.Dir(p) == filepath.Join(d.dir, "sandboxes") && !strings.HasPrefix(e.Name(), ".") {
			h[heldDirectories]++
		}
		return nil // files come and go
	})
	return h
}

// countCgroups counts the groups next to those of the daemon's processes. It learns their places
// while a sandbox lives, and remembers them.
func (d *daemon) countCgroups(of map[string]bool) int {
	if d.groups == nil {
		d.groups = map[string]bool{}
	}
	for line := range of {
		_, rest, _ := strings.Cut(line, ":")
		controllers, path, _ := strings.Cut(rest, ":")
		if strings.Contains(path, "/carrel/") {
			d.groups[filepath.Join("/sys/fs/cgroup", controllers, filepath.Dir(path))] = true
		}
	}
	n := 0
	for dir := range d.groups {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if e.IsDir() {
				n++
			}
		}
	}
	return n
}

// processes returns the daemon and all its descendants.
func (d *daemon) processes() []int {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		if fields, err := statFields(name); err == nil {
			child, _ := strconv.Atoi(strings.Split(name, "/")[2])
			parent, _ := strconv.Atoi(fields[1])
			children[parent] = append(children[parent], child)
		}
	}
	all := []int{d.cmd.Process.Pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}

// statFields returns the fields of /proc/PID/stat after the name.
func statFields(name string) ([]string, error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	text := string(raw)
	return strings.Fields(text[strings.LastIndexByte(text, ')')+1:]), nil
}

// settled waits at most half a minute until the daemon holds no more than before. It returns how
// much more it still holds. Its own descriptors and records may grow.
func (d *daemon) settled(ctx context.Context, before holdings) (int, string) {
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		now, sum := d.holdings(), 0
		var what []string
		for _, kind := range []string{heldProcesses, heldDirectories, heldCgroups, heldMounts} {
			if more := now[kind] - before[kind]; more > 0 {
				sum += more
				what = append(what, fmt.Sprintf("%d %s", more, kind))
			}
		}
		if sum == 0 || ctx.Err() != nil || time.Now().After(end) {
			return sum, strings.Join(what, ", ")
		}
	}
}

// kinds are the sorted names.
func (h holdings) kinds() []string { return slices.Sorted(maps.Keys(h)) }

// processorTime is the time used by a process, and by its children that have ended.
type processorTime struct{ own, children time.Duration }

// cpu is the daemon's.
func (d *daemon) cpu() processorTime {
	f, err := statFields(fmt.Sprintf("/proc/%d/stat", d.cmd.Process.Pid))
	if err != nil || len(f) < 15 {
		return processorTime{}
	}
	ticks := func(i int) time.Duration {
		n, _ := strconv.ParseInt(f[i], 10, 64)
		return time.Duration(n) * 10 * time.Millisecond // USER_HZ is 100 on every Linux that Go supports
	}
	return processorTime{own: ticks(11) + ticks(12), children: ticks(13) + ticks(14)}
}

// since returns the time used since before.
func (p processorTime) since(before processorTime) (own, children time.Duration) {
	return p.own - before.own, p.children - before.children
}

// residentMemory returns the resident memory of one process. It includes pages of the binary that
// are shared with other processes of that binary.
func residentMemory(pid int) int64 { return statusMemory(pid, "VmRSS:") }

// ownMemory returns the part that no file backs. Only this part can leak.
func ownMemory(pid int) int64 { return statusMemory(pid, "RssAnon:") }

func statusMemory(pid int, line string) int64 {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	return kilobytes(string(raw), line)
}

// proportionalMemory adds up the proportional set sizes of the daemon and all its descendants: a
// shared page counts once in total.
func (d *daemon) proportionalMemory() int64 {
	var sum int64
	for _, pid := range d.processes() {
		if raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid)); err == nil {
			sum += kilobytes(string(raw), "Pss:")
		}
	}
	return sum
}

// charged adds up the memory that the kernel charges to the sandboxes' control groups: exactly all
// memory that is theirs alone, the kernel's memory for them included. It returns false if they have
// no groups.
func (d *daemon) charged() (int64, bool) {
	groups := map[string]bool{}
	for _, pid := range d.processes() {
		raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		for line := range strings.Lines(string(raw)) {
			_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
			controllers, path, _ := strings.Cut(rest, ":")
			switch {
			case !strings.Contains(path, "/carrel/"):
			case controllers == "memory":
				groups[filepath.Join("/sys/fs/cgroup/memory", path, "memory.usage_in_bytes")] = true
			case controllers == "":
				groups[filepath.Join("/sys/fs/cgroup", path, "memory.current")] = true
			}
		}
	}
	var sum int64
	for file := range groups {
		raw, err := os.ReadFile(file)
		if err != nil {
			delete(groups, file)
			continue
		}
		n, _ := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
		sum += n
	}
	return sum, len(groups) > 0
}

// diskUsage returns how many bytes of the disk a directory takes.
func diskUsage(dir string) (int64, error) {
	var sum int64
	seen := map[uint64]bool{}
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // files come and go
		}
		if info, err := e.Info(); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok && !seen[st.Ino] {
				seen[st.Ino] = true
				sum += st.Blocks * 512
			}
		}
		return nil
	})
	return sum, err
}
