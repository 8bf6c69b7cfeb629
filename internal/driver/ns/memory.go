package ns

import (
	"sync"
	"time"

	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// Without a memory control group, as an ordinary user mostly has none, nobody
// bounds what a sandbox uses. Then the driver looks at it itself, often enough that
// a sandbox which fills memory as fast as it can passes its limit by little, and
// ends it as the kernel would have. It sees the memory that processes have mapped; what only
// a descriptor holds (an unmapped memory file) it does not.

// How often a sandbox is looked at, see proc.NextLook.
const (
	memorySpeed   = 2 << 30 // bytes per second
	memoryLookMin = 20 * time.Millisecond
	memoryLookMax = 250 * time.Millisecond
)

// guardMemory ends the sandbox when it uses more than it may, until stop is called.
func (in *Instance) guardMemory() (stop func()) {
	if in.d.groups.Has(cgroup.Memory) {
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
	timer := time.NewTimer(memoryLookMin)
	defer timer.Stop()
	for {
		select {
		case <-done:
			return
		case <-timer.C:
		}
		left := limit
		for _, pid := range proc.Tree(in.rec.PID) {
			left -= resident(pid)
		}
		if left < 0 {
			in.overMemory.Store(true)
			in.Kill()
			return
		}
		timer.Reset(proc.NextLook(left, memorySpeed, memoryLookMin, memoryLookMax))
	}
}
