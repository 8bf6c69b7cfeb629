package gvisor

import (
	"context"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
)

// Stats implements driver.Instance. The control group measures; without one the
// processes are added up, where memory that only the sandbox's own processes map
// at the moment is counted once, as the largest share any of them has.
func (in *Instance) Stats(context.Context) (driver.Stats, error) {
	s := driver.Stats{DiskLimit: int64(in.rec.DiskMB) << 20, Disk: in.diskUsed()}
	h := in.d.groups
	g := in.group.Stats()
	s.CPU, s.Memory, s.MemoryCache, s.Pids = g.CPU, g.Memory, g.Cache, g.Pids
	if h.Has(cgroup.Memory) {
		s.MemoryLimit = int64(in.rec.MemoryMB) << 20
	}
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
	var shared int64
	for _, pid := range tree(in.rec.PID) {
		st, err := readStat(pid)
		if err != nil {
			continue // it ended meanwhile
		}
		s.CPU += st.cpu
		s.Pids += st.threads
		private, sh := residentParts(pid)
		s.Memory += private
		shared = max(shared, sh)
	}
	s.Memory += shared
	return s
}

// diskUsed is what the sandbox's file takes on the host's disk.
func (in *Instance) diskUsed() int64 {
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(in.rec.Dir, diskFile), &st); err != nil {
		return 0
	}
	const blockSize = 512 // the unit of st_blocks, whatever the filesystem
	return st.Blocks * blockSize
}
