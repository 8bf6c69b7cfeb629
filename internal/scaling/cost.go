package scaling

import "fmt"

// Costs is a sandbox's use of a node's resources. All of it can be measured on one machine.
type Costs struct {
	// Processor seconds, of all processes together, until the first command has answered.
	ColdCPU, WarmCPU, RestoreCPU, PauseCPU float64
	// Seconds besides those, without processor use. Most are spent on the disk.
	ColdIdle, WarmIdle, RestoreIdle float64
	// MiB of memory: of a sandbox in which nothing runs yet, and of the daemon for it.
	IdleMB, DaemonMB float64
	// DaemonBaseMB is the daemon's memory without sandboxes. IdleCPU is the part of a processor
	// that one idle sandbox uses, with the daemon's work for it.
	DaemonBaseMB, IdleCPU float64
	// DiskMB is for a sandbox that wrote nothing, SnapshotMB for a paused one.
	DiskMB, SnapshotMB float64
	// Descriptors of the daemon, tasks and network namespaces of the host.
	Files, Tasks, Namespaces float64
}

// Node is a machine.
type Node struct {
	Processors  int
	MemoryMB    float64
	DiskMB      float64
	Files       float64 // that a process may open
	Tasks       float64
	NetworkMBps float64 // for fetching templates and snapshots
}

// Limit is how many sandboxes one resource has room for.
type Limit struct {
	What string
	Most float64
}

// Limits returns how many idle sandboxes each of a node's resources has room for. reserve is the
// part of the memory that stays free.
func (c Costs) Limits(n Node, reserve float64) []Limit {
	per := func(have, each float64) float64 {
		if each <= 0 {
			return 0
		}
		return have / each
	}
	return []Limit{
		{"memory", per(n.MemoryMB*(1-reserve)-c.DaemonBaseMB, c.IdleMB+c.DaemonMB)},
		{"processor", per(float64(n.Processors), c.IdleCPU)},
		{"disk", per(n.DiskMB, c.DiskMB)},
		{"descriptors", per(n.Files, c.Files)},
		{"tasks", per(n.Tasks, c.Tasks)},
	}
}

// Sustained is how many sandboxes a node can start in a second when nothing else runs on it.
func (c Costs) Sustained(n Node) float64 { return float64(n.Processors) / c.ColdCPU }

// Validate checks that the costs can be used for a run.
func (c Costs) Validate() error {
	if c.ColdCPU <= 0 || c.WarmCPU <= 0 || c.RestoreCPU <= 0 || c.IdleMB <= 0 {
		return fmt.Errorf("costs: coldCPU, warmCPU, restoreCPU and idleMB must be more than 0: %+v", c)
	}
	return nil
}

// Measured holds the results of the 2-processor machine of docs/SCALING.md, with gVisor sandboxes
// of the base template, the worse of two runs. The waits without a processor, and WarmCPU, can't be
// separated from others' work there, and are estimates.
var Measured = Costs{
	ColdCPU: 0.079, WarmCPU: 0.020, RestoreCPU: 0.071, PauseCPU: 0.012,
	ColdIdle: 0.012, WarmIdle: 0.002, RestoreIdle: 0.020,
	IdleMB: 10, DaemonMB: 0.15, DaemonBaseMB: 55, IdleCPU: 0.00064,
	DiskMB: 0.1, SnapshotMB: 20, Files: 5, Tasks: 16.1, Namespaces: 1,
}
