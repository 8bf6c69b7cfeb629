package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Limits bounds a group. Zero fields are unlimited.
type Limits struct {
	Memory int64   // bytes, swap included: a group never swaps
	CPUs   float64 // cores
	Pids   int     // tasks: processes and threads
}

// Paths are a group's directories, for a durable record of it.
type Paths struct {
	V2 string                `json:"v2,omitempty"`
	V1 map[Controller]string `json:"v1,omitempty"`
}

// Group is one group in all hierarchies. It is safe for concurrent use.
type Group struct{ paths Paths }

// Load returns the group with these directories; they need not exist any more.
func Load(p Paths) *Group { return &Group{paths: p} }

// Paths returns the group's directories.
func (g *Group) Paths() Paths { return g.paths }

// Processes lists the processes in the group.
func (g *Group) Processes() (pids []int) {
	for _, d := range g.dirs() {
		b, _ := os.ReadFile(filepath.Join(d, "cgroup.procs"))
		for _, w := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(w); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// Empty reports whether the group has no directory: no controller was usable.
func (g *Group) Empty() bool { return g.paths.V2 == "" && len(g.paths.V1) == 0 }

// Lookup returns the group of that name. The group need not exist.
func (h *Hierarchy) Lookup(name string) *Group {
	p := Paths{V1: map[Controller]string{}}
	if h.v2 != "" {
		p.V2 = filepath.Join(h.v2, name)
	}
	for c, dir := range h.v1 {
		p.V1[c] = filepath.Join(dir, name)
	}
	return &Group{paths: p}
}

// Create makes a group with limits. It removes an empty group of that name first, which a crash may
// have left. A group with processes must not exist. On an error nothing is left.
func (h *Hierarchy) Create(name string, l Limits) (*Group, error) {
	if name == "" || name != filepath.Base(name) {
		return nil, fmt.Errorf("create cgroup: bad name %q", name)
	}
	g := h.Lookup(name)
	made := make([]string, 0, 4)
	undo := func(err error) (*Group, error) {
		for _, d := range made {
			_ = os.Remove(d)
		}
		return nil, fmt.Errorf("create cgroup: %w", err)
	}
	for _, d := range g.dirs() {
		if err := h.makeGroupDir(d); err != nil {
			return undo(err)
		}
		made = append(made, d)
	}
	if err := g.limit(l); err != nil {
		return undo(err)
	}
	return g, nil
}

// parentTries bounds how often a parent that others remove is made again.
const parentTries = 100

// makeGroupDir makes a group's directory. Others of the same name may close at the same time, and
// their Close removes a parent that has no group yet. So makeGroupDir makes the parent again and
// retries. Without its group a box of root would have no limit on processes.
func (h *Hierarchy) makeGroupDir(dir string) error {
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrExist) && syscall.Rmdir(dir) == nil {
		err = os.Mkdir(dir, 0o755)
	}
	for range parentTries {
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
		h.remake()
		err = os.Mkdir(dir, 0o755)
	}
	return err
}

// Limit sets limits on a group that was made without them. An existing limit can be raised or
// lowered, except the limit on memory.
func (g *Group) Limit(l Limits) error {
	if err := g.limit(l); err != nil {
		return fmt.Errorf("limit cgroup: %w", err)
	}
	return nil
}

// GiveWay sets whether the group gets the processor only when no other group beside it wants it. A
// kernel that can't do that ignores it.
func (g *Group) GiveWay(yes bool) {
	v1, v2 := "1024", "100" // the defaults of a new group
	if yes {
		v1, v2 = "2", "1"
	}
	_ = g.writeIfThere(CPU, "cpu.shares", v1, "cpu.weight", v2)
}

// dirs returns the group's directories without duplicates.
func (g *Group) dirs() []string {
	var out []string
	if g.paths.V2 != "" {
		out = append(out, g.paths.V2)
	}
	for _, c := range controllers {
		if d := g.paths.V1[c]; d != "" {
			out = append(out, d)
		}
	}
	return unique(out...)
}

// cpuPeriod is the time slice in which the processor quota is counted, in µs.
const cpuPeriod = 100_000

// limit writes the limits.
func (g *Group) limit(l Limits) error {
	quota := strconv.FormatInt(int64(l.CPUs*cpuPeriod), 10)
	period := strconv.Itoa(cpuPeriod)
	if l.Memory > 0 {
		bytes := strconv.FormatInt(l.Memory, 10)
		if err := g.write(Memory, "memory.limit_in_bytes", "memory.max", bytes); err != nil {
			return err
		}
		// No swap. If the file is missing, the kernel does not account swap, and there is none to
		// bound.
		if err := g.writeIfThere(Memory, "memory.memsw.limit_in_bytes", bytes, "memory.swap.max", "0"); err != nil {
			return err
		}
		if err := g.writeIfThere(Memory, "", "", "memory.oom.group", "1"); err != nil {
			return err
		}
	}
	if l.CPUs > 0 {
		if err := g.write(CPU, "cpu.cfs_period_us", "", period); err != nil {
			return err
		}
		if err := g.write(CPU, "cpu.cfs_quota_us", "", quota); err != nil {
			return err
		}
		if err := g.write(CPU, "", "cpu.max", quota+" "+period); err != nil {
			return err
		}
	}
	if l.Pids > 0 {
		return g.write(Pids, "pids.max", "pids.max", strconv.Itoa(l.Pids))
	}
	return nil
}

// dir returns the directory that controls c, and whether it is version 2.
func (g *Group) dir(c Controller) (dir string, v2 bool) {
	if d := g.paths.V1[c]; d != "" {
		return d, false
	}
	if c == CPUAcct && g.paths.V1[CPU] != "" {
		return "", false
	}
	return g.paths.V2, true
}

// write writes a limit to the file of the version that controls c. It skips a controller that this
// host does not give us.
func (g *Group) write(c Controller, v1, v2, value string) error {
	dir, isV2 := g.dir(c)
	name := v1
	if isV2 {
		name = v2
	}
	if dir == "" || name == "" {
		return nil
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0); err != nil {
		if isV2 && errors.Is(err, fs.ErrNotExist) {
			return nil // version 2 without this controller
		}
		return err
	}
	return nil
}

// writeIfThere is write for files that some kernels lack.
func (g *Group) writeIfThere(c Controller, v1, value1, v2, value2 string) error {
	dir, isV2 := g.dir(c)
	name, value := v1, value1
	if isV2 {
		name, value = v2, value2
	}
	if dir == "" || name == "" {
		return nil
	}
	err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Kill sends SIGKILL to every process in the group except this one. In version 1 the thread that
// started a child is in the group until it ends.
func (g *Group) Kill() error {
	if g.paths.V2 != "" {
		err := os.WriteFile(filepath.Join(g.paths.V2, "cgroup.kill"), []byte("1"), 0)
		if err == nil && len(g.paths.V1) == 0 {
			return nil
		}
	}
	for _, pid := range g.Processes() {
		if pid > 0 && pid != os.Getpid() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	return nil
}

// busyTime bounds how long an empty group may be busy: the kernel lets go of its last process a
// moment after that process has ended.
const busyTime = 500 * time.Millisecond

// RemoveEmpty removes the group if no process is in it. It kills nothing. A group with processes
// stays, and that is an error. It is idempotent.
func (g *Group) RemoveEmpty(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, busyTime)
	defer cancel()
	for {
		var left error
		for _, d := range g.dirs() {
			if err := syscall.Rmdir(d); err != nil && err != syscall.ENOENT {
				left = fmt.Errorf("remove cgroup %s: %w", d, err)
			}
		}
		if left == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return left
		case <-time.After(time.Millisecond):
		}
	}
}

// Destroy kills all processes in the group and removes it. It is idempotent. Error: ctx ended
// before the kernel let the group go.
func (g *Group) Destroy(ctx context.Context) error {
	const most = 20 * time.Millisecond
	wait := 200 * time.Microsecond
	for {
		var left error
		for _, d := range g.dirs() {
			if err := syscall.Rmdir(d); err != nil && err != syscall.ENOENT {
				left = fmt.Errorf("remove cgroup %s: %w", d, err)
			}
		}
		if left == nil {
			return nil
		}
		_ = g.Kill()
		select {
		case <-ctx.Done():
			return left
		case <-time.After(wait):
		}
		if wait *= 2; wait > most {
			wait = most
		}
	}
}
