//go:build linux

package hosted

import (
	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// Meter measures a sandbox: its control group does, and where the host gives none, its processes are added up.
type Meter struct {
	Hierarchy *cgroup.Hierarchy
	Group     *cgroup.Group
	// Processes returns CPU, Memory and Pids of the processes. It is called only where a controller is missing.
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

// EachProcess calls f for a process and all its descendants, those aside that end meanwhile.
func EachProcess(pid int, f func(pid int, st proc.Stat)) {
	for _, p := range proc.Tree(pid) {
		if st, err := proc.ReadStat(p); err == nil {
			f(p, st)
		}
	}
}

// BlockSize is the unit of st_blocks, whatever the filesystem.
const BlockSize = 512

// FileUse is what a file takes on the host's disk, holes aside; 0 for one that is not there.
func FileUse(name string) int64 {
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return 0
	}
	return st.Blocks * BlockSize
}
