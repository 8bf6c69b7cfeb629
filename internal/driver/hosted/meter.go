//go:build linux

package hosted

import (
	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// Meter measures a sandbox with its control group. For controllers that the host does not give, it
// adds up the processes.
type Meter struct {
	Hierarchy *cgroup.Hierarchy
	Group     *cgroup.Group
	// Processes returns CPU, Memory and Pids of the processes. It is called only when a controller
	// is missing.
	Processes func() driver.Stats
}

// Read measures processor time, memory and host tasks.
func (m Meter) Read() (s driver.Stats) {
	g := m.Group.Stats()
	s.CPU, s.Memory, s.MemoryCache, s.Pids = g.CPU, g.Memory, g.Cache, g.Pids
	cpu, memory, pids := m.Hierarchy.Has(cgroup.CPUAcct), m.Hierarchy.Has(cgroup.Memory), m.Hierarchy.Has(cgroup.Pids)
	if cpu && memory && pids {
		return s
	}
	p := m.Processes()
	if !cpu {
		s.CPU = p.CPU
	}
	if !memory {
		s.Memory = p.Memory
	}
	if !pids {
		s.Pids = p.Pids
	}
	return s
}

// EachProcess calls f for a process and all its descendants. It leaves out those that have ended by
// then.
func EachProcess(pid int, f func(pid int, st proc.Stat)) {
	for _, p := range proc.Tree(pid) {
		if st, err := proc.ReadStat(p); err == nil {
			f(p, st)
		}
	}
}

// BlockSize is the unit of st_blocks on every filesystem.
const BlockSize = 512

// FileUse is the size of a file on the host's disk, without holes; 0 if there is no such file.
func FileUse(name string) int64 {
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return 0
	}
	return st.Blocks * BlockSize
}
