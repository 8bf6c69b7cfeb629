package gvisor

import (
	"context"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// Stats implements driver.Instance. The control group measures; without one the
// processes are added up.
func (in *Instance) Stats(context.Context) (driver.Stats, error) {
	s := driver.Stats{DiskLimit: int64(in.rec.DiskMB) << 20, Disk: in.diskUsed(),
		MemoryLimit: int64(in.rec.MemoryMB) << 20}
	h := in.d.groups
	g := in.group.Stats()
	s.CPU, s.Memory, s.MemoryCache, s.Pids = g.CPU, g.Memory, g.Cache, g.Pids
	if h.Has(cgroup.Memory) && h.Has(cgroup.CPUAcct) && h.Has(cgroup.Pids) {
		return s, nil
	}
	p := in.processStats()
	if !h.Has(cgroup.CPUAcct) {
		s.CPU = p.CPU
	}
	if !h.Has(cgroup.Memory) {
		s.Memory = p.Memory
	}
	if !h.Has(cgroup.Pids) {
		s.Pids = p.Pids
	}
	return s, nil
}

// processStats adds up the sentry's processes.
func (in *Instance) processStats() (s driver.Stats) {
	for _, pid := range proc.Tree(in.rec.PID) {
		st, err := proc.ReadStat(pid)
		if err != nil {
			continue // it ended meanwhile
		}
		s.CPU += st.CPU
		s.Pids += st.Threads
	}
	use := memoryUse{pid: in.rec.PID}
	s.Memory = use.now()
	return s
}

// blockSize is the unit of st_blocks, whatever the filesystem.
const blockSize = 512

// diskUsed is what the sandbox's file takes on the host's disk.
func (in *Instance) diskUsed() int64 {
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(in.rec.Dir, diskFile), &st); err != nil {
		return 0
	}
	return st.Blocks * blockSize
}
