package ns

import (
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// resident is the memory of a process in bytes: its own, and its part of shared memory files. It
// misses memory that only a descriptor holds (a memory file that nobody maps).
func resident(pid int) int64 { return hosted.StatusBytes(pid, "RssAnon", "RssShmem") }

// guardMemory ends the sandbox when it uses more memory than its limit, until the caller calls
// stop.
func (in *Instance) guardMemory() (stop func()) {
	if !hosted.GuardsMemory(in.d.groups) {
		return func() {}
	}
	used := func() (sum int64) {
		for _, pid := range proc.Tree(in.rec.PID) {
			sum += resident(pid)
		}
		return sum
	}
	return in.memory.Watch(int64(in.rec.MemoryMB)<<20, used, in.Kill)
}
