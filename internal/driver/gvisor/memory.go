package gvisor

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// Without a memory control group, as an ordinary user mostly has none, nobody
// bounds what a sandbox uses. Then the driver looks at it itself, often enough that
// a sandbox which fills memory as fast as it can passes its limit by little, and
// ends it as the kernel would have.
//
// All memory of the programs inside is one file in memory that the sentry made,
// whichever of its processes maps it; the sentry's own is its anonymous memory. So
// two cheap questions answer for any number of processes.

// memfdName is what the sentry calls that file.
const memfdName = "runsc-memory"

// How often a sandbox is looked at, see proc.NextLook.
const (
	memorySpeed   = 2 << 30 // bytes per second
	memoryLookMin = 20 * time.Millisecond
	memoryLookMax = 250 * time.Millisecond
)

// watchesMemory reports whether the driver bounds the memory itself.
func (d *Driver) watchesMemory() bool { return !d.groups.Has(cgroup.Memory) }

// guardMemory ends the sandbox when it uses more than it may, until stop is called.
func (in *Instance) guardMemory() (stop func()) {
	if !in.d.watchesMemory() {
		return func() {}
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { in.lookAtMemory(done) })
	return func() { close(done); wg.Wait() }
}

// lookAtMemory is guardMemory's loop.
func (in *Instance) lookAtMemory(done <-chan struct{}) {
	limit := int64(in.rec.MemoryMB) << 20
	use := memoryUse{pid: in.rec.PID}
	timer := time.NewTimer(memoryLookMin)
	defer timer.Stop()
	for {
		select {
		case <-done:
			return
		case <-timer.C:
		}
		left := limit - use.now()
		if left < 0 {
			in.overMemory.Store(true)
			in.Kill()
			return
		}
		timer.Reset(proc.NextLook(left, memorySpeed, memoryLookMin, memoryLookMax))
	}
}

// outOfMemory reports whether the memory limit ended the sandbox. It must run
// while the control group exists.
func (in *Instance) outOfMemory() bool {
	return in.overMemory.Load() || in.group.Events().OOMKills > 0
}

// memoryUse measures one sentry.
type memoryUse struct {
	pid  int
	file string // of the programs' memory, as /proc shows it; "" until it is found
}

// now is what the sandbox uses, in bytes.
func (m *memoryUse) now() int64 {
	n := residentAnon(m.pid)
	if m.file == "" {
		m.file = findMemfd(m.pid)
	}
	var st unix.Stat_t
	if m.file != "" && unix.Stat(m.file, &st) == nil {
		n += st.Blocks * blockSize
	}
	return n
}

// findMemfd finds the sentry's memory file among its descriptors. The daemon made
// the sentry's user namespace, so it may look.
func findMemfd(pid int) string {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd/"
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if to, err := os.Readlink(dir + e.Name()); err == nil && strings.HasPrefix(to, "/memfd:"+memfdName) {
			return dir + e.Name()
		}
	}
	return ""
}
