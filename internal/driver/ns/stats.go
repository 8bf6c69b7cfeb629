package ns

import (
	"context"
	"io/fs"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// Stats implements driver.Instance.
func (in *Instance) Stats(context.Context) (driver.Stats, error) {
	s := hosted.Meter{Hierarchy: in.d.groups, Group: in.group, Processes: in.processStats}.Read()
	s.MemoryLimit, s.Disk, s.DiskLimit = int64(in.rec.MemoryMB)<<20, in.diskUsed(), int64(in.rec.DiskMB)<<20
	return s, nil
}

// processStats adds up the sandbox's processes. The time of an ended process counts for the parent
// that waited for it.
func (in *Instance) processStats() (s driver.Stats) {
	hosted.EachProcess(in.rec.PID, func(pid int, st proc.Stat) {
		s.CPU += st.CPU + st.Children
		s.Pids += st.Threads
		s.Memory += resident(pid)
	})
	return s
}

// diskEvery is the least time between two measurements of a layer that is a directory: it may hold
// many files.
const diskEvery = 10 * time.Second

// diskUse caches a sum.
type diskUse struct {
	mu    sync.Mutex
	at    time.Time
	bytes int64
}

// diskUsed is the size of the sandbox's layer on the host's disk.
func (in *Instance) diskUsed() int64 {
	if in.rec.DiskMB > 0 {
		return hosted.FileUse(filepath.Join(in.rec.Dir, diskFile))
	}
	in.used.mu.Lock()
	defer in.used.mu.Unlock()
	if in.used.at.IsZero() || time.Since(in.used.at) > diskEvery {
		in.used.bytes, in.used.at = sumTree(filepath.Join(in.rec.Dir, diskDir, upperName)), time.Now()
	}
	return in.used.bytes
}

// sumTree adds up the sizes of the files below a directory. Each hard link counts.
func sumTree(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // it is gone, or closed to us
		}
		if info, err := e.Info(); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				bytes += st.Blocks * hosted.BlockSize
			}
		}
		return nil
	})
	return bytes
}
