package ns

import (
	"context"
	"io/fs"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// Stats implements driver.Instance. The control group measures; without one the
// processes are added up.
func (in *Instance) Stats(context.Context) (driver.Stats, error) {
	s := driver.Stats{DiskLimit: int64(in.rec.DiskMB) << 20, Disk: in.diskUsed(), MemoryLimit: int64(in.rec.MemoryMB) << 20}
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

// processStats adds up the sandbox's processes. The time of those that ended is with the parent that waited for them.
func (in *Instance) processStats() (s driver.Stats) {
	for _, pid := range proc.Tree(in.rec.PID) {
		st, err := proc.ReadStat(pid)
		if err != nil {
			continue // it ended meanwhile
		}
		s.CPU += st.CPU + st.Children
		s.Pids += st.Threads
		s.Memory += resident(pid)
	}
	return s
}

// blockSize is the unit of st_blocks, whatever the filesystem.
const blockSize = 512

// diskEvery is how often a layer that is a directory is added up, at most: it may hold many files.
const diskEvery = 10 * time.Second

// diskUse remembers a sum.
type diskUse struct {
	mu    sync.Mutex
	at    time.Time
	bytes int64
}

// diskUsed is what the sandbox's layer takes on the host's disk.
func (in *Instance) diskUsed() int64 {
	if in.rec.DiskMB > 0 {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(in.rec.Dir, diskFile), &st); err != nil {
			return 0
		}
		return st.Blocks * blockSize
	}
	in.used.mu.Lock()
	defer in.used.mu.Unlock()
	if in.used.at.IsZero() || time.Since(in.used.at) > diskEvery {
		in.used.bytes, in.used.at = sumTree(filepath.Join(in.rec.Dir, diskDir, upperName)), time.Now()
	}
	return in.used.bytes
}

// sumTree adds up what the files below a directory take. Hard links count each time.
func sumTree(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // it went away, or is closed to us
		}
		if info, err := e.Info(); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				bytes += st.Blocks * blockSize
			}
		}
		return nil
	})
	return bytes
}
