//go:build linux

package box

import (
	"context"
	"math"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// boxes counts the boxes of this process, for the names of their groups.
var boxes atomic.Int64

// prepare makes the group that bounds the box. For controllers without a group it chooses a
// replacement.
func (b *Box) prepare() {
	l := b.spec.Limits
	if l.Memory == 0 && l.Pids == 0 && l.CPUs == 0 {
		return
	}
	has := func(cgroup.Controller) bool { return false }
	late := b.options.Cgroup != "" && b.options.CgroupAfter > 0 && !b.options.Detach
	if b.options.Cgroup != "" && !late {
		if err := b.makeGroup(); err != nil {
			b.missing = append(b.missing, "no control group: "+err.Error())
		} else if b.group != nil {
			has = b.groups.Has
		}
	}
	if late { // these replacements work until the group exists, or without it
		defer func() { b.missing, b.late = nil, true }()
	}
	if l.Memory > 0 && !has(cgroup.Memory) {
		b.measure = true
		b.missing = append(b.missing, "no control group for memory: it is measured, and a box over its limit ended, a moment late")
	}
	if l.Pids > 0 && !has(cgroup.Pids) {
		b.countProcesses()
	}
	if l.CPUs > 0 && !has(cgroup.CPU) {
		n := int(math.Ceil(l.CPUs))
		if n < runtime.NumCPU() {
			b.order.CPUs = n
		}
		if float64(n) != l.CPUs {
			b.missing = append(b.missing, "no control group for processor time: the box has "+strconv.Itoa(n)+" whole processors")
		}
	}
}

// stageThreads is the number of tasks that the stage itself may need of those that RLIMIT_NPROC
// counts.
const stageThreads = 24

// countProcesses bounds the number of processes with RLIMIT_NPROC. The kernel counts it in the
// box's own user namespace.
func (b *Box) countProcesses() {
	switch {
	case os.Geteuid() == 0 && len(b.spec.UIDMap) == 0:
		b.missing = append(b.missing, "no control group for processes, and the kernel does not count those of root: their number is not limited")
	case b.spec.Light:
		b.missing = append(b.missing, "no control group for processes, and no user namespace to count them in: their number is not limited")
	default:
		b.order.NProc = uint64(b.spec.Limits.Pids) + stageThreads
	}
}

// makeGroup makes a group with the limits. If this host gives none, there is no group.
func (b *Box) makeGroup() error {
	var without []cgroup.Controller
	if b.spec.Limits.CPUs == 0 {
		// Of a box in a group of its own all processes together get no more than one process
		// outside, and all boxes together no more than their common parent.
		without = []cgroup.Controller{cgroup.CPU, cgroup.CPUAcct}
	}
	h, err := cgroup.Open(b.options.Cgroup, without...)
	if err != nil {
		return err
	}
	if !h.Any() {
		return nil
	}
	l := b.spec.Limits
	g, err := h.Create(strconv.Itoa(os.Getpid())+"-"+strconv.FormatInt(boxes.Add(1), 10), cgroup.Limits{Memory: l.Memory, CPUs: l.CPUs, Pids: l.Pids})
	if err != nil {
		_ = h.Close()
		return err
	}
	b.groups, b.group = h, g
	return nil
}

// joinLate puts a running box, with all its processes, into a group. It works in rounds. A process
// that a moved task starts is born in the group, and the group's own limit bounds it. So the rounds
// end, however fast the box forks.
func (b *Box) joinLate() {
	wait := time.NewTimer(b.options.CgroupAfter)
	defer wait.Stop()
	select {
	case <-b.stopping:
		return
	case <-wait.C:
	}
	if err := b.makeGroup(); err != nil || b.group == nil {
		return
	}
	moved := map[int]bool{}
	for range 1000 {
		fresh := false
		for _, pid := range proc.Tree(b.stage) {
			if !moved[pid] && b.group.Add(pid) == nil {
				moved[pid], fresh = true, true
			}
		}
		if !fresh {
			break
		}
	}
	b.grouped.Store(b.groups.Has(cgroup.Memory))
}

// release removes the group, and reports the processes that its limits ended.
func (b *Box) release() {
	if b.group == nil {
		return
	}
	e := b.group.Events()
	if e.OOMKills > 0 {
		b.note("memory", bytesText(b.spec.Limits.Memory), true)
	}
	if e.PidsMax > 0 {
		b.note("pids", strconv.Itoa(b.spec.Limits.Pids), false)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = b.group.Destroy(ctx)
	_ = b.groups.Close()
	b.group = nil
}

// note reports a limit, once each. ends says that the limit ended the box.
func (b *Box) note(name, value string, ends bool) {
	b.mu.Lock()
	told := b.told[name]
	if b.told == nil {
		b.told = map[string]bool{}
	}
	b.told[name] = true
	if ends && b.limit == "" {
		b.limit = name
	}
	b.mu.Unlock()
	if f := b.options.Events.Limit; f != nil && !told {
		f(name, value)
	}
}

// ended kills the box because of a limit.
func (b *Box) ended(name, value string) {
	b.note(name, value, true)
	_ = b.Kill()
}

// watchMemory ends the box when it exceeds its memory limit. Shared memory is counted through the
// filesystems that hold it.
func (b *Box) watchMemory(stop <-chan struct{}) {
	const fill = 4 << 30 // bytes per second: two processors that only fill memory
	const often, seldom = 2 * time.Millisecond, 100 * time.Millisecond
	most := b.spec.Limits.Memory
	for left := most; ; {
		select {
		case <-stop:
			return
		case <-time.After(proc.NextLook(left, fill, often, seldom)):
		}
		if b.grouped.Load() {
			return
		}
		if left = most - b.used(); left < 0 {
			b.ended("memory", bytesText(most))
			return
		}
	}
}

// used is the memory of the command with its descendants, and of the box's own filesystems.
func (b *Box) used() int64 {
	var sum int64
	for _, pid := range proc.Tree(b.stage) {
		if pid != b.stage || b.spec.Init {
			sum += memoryOf(pid)
		}
	}
	if b.root == nil || b.spec.Light {
		return sum
	}
	for _, dir := range []string{"tmp", "dev/shm", "run"} {
		fd, err := unix.Openat(int(b.root.Fd()), dir, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		var st unix.Statfs_t
		if unix.Fstatfs(fd, &st) == nil && st.Type == unix.TMPFS_MAGIC {
			sum += int64(st.Blocks-st.Bfree) * st.Bsize
		}
		_ = unix.Close(fd)
	}
	return sum
}

// bytesText formats a size for people.
func bytesText(n int64) string {
	if n >= 1<<20 {
		return strconv.FormatInt(n>>20, 10) + " MiB"
	}
	return strconv.FormatInt(n, 10) + " bytes"
}

// Freeze stops every process inside that this process can see. It repeats this until it finds no
// new one.
func (b *Box) Freeze() error { return b.stopAll(unix.SIGSTOP) }

// Thaw undoes Freeze.
func (b *Box) Thaw() error { return b.stopAll(unix.SIGCONT) }

func (b *Box) stopAll(s unix.Signal) error {
	b.reaping.Lock()
	defer b.reaping.Unlock()
	if b.reaped {
		return os.ErrProcessDone
	}
	b.frozen.Store(s == unix.SIGSTOP)
	const rounds = 16
	seen := map[int]bool{}
	for range rounds {
		fresh := false
		for _, pid := range proc.Tree(b.stage) {
			if (pid == b.stage && !b.spec.Init) || seen[pid] {
				continue
			}
			seen[pid], fresh = true, true
			if err := unix.Kill(pid, s); err != nil && err != unix.ESRCH {
				return os.NewSyscallError("kill", err)
			}
		}
		if !fresh {
			break
		}
	}
	return nil
}
