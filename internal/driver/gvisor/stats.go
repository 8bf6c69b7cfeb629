package gvisor

import (
	"context"
	"path/filepath"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// Stats implements driver.Instance.
func (in *Instance) Stats(context.Context) (driver.Stats, error) {
	s := hosted.Meter{Hierarchy: in.d.groups, Group: in.group, Processes: in.processStats}.Read()
	s.MemoryLimit, s.DiskLimit = int64(in.rec.MemoryMB)<<20, int64(in.rec.DiskMB)<<20
	s.Disk = hosted.FileUse(filepath.Join(in.rec.Dir, diskFile))
	return s, nil
}

// processStats adds up the sentry's processes.
func (in *Instance) processStats() (s driver.Stats) {
	hosted.EachProcess(in.rec.PID, func(_ int, st proc.Stat) {
		s.CPU += st.CPU
		s.Pids += st.Threads
	})
	use := memoryUse{pid: in.rec.PID}
	s.Memory = use.now()
	return s
}
