package scaling

import "fmt"

// Costs is what a sandbox takes of a node. All of it can be measured on one machine.
type Costs struct {
	// Processor seconds, of all processes together, until the first command has answered.
	ColdCPU, WarmCPU, RestoreCPU, PauseCPU float64
	// Seconds beside those, in which no processor is used: the disk's, mostly.
	ColdIdle, WarmIdle, RestoreIdle float64
	// MiB of memory: one in which nothing runs yet, and what the daemon needs for it.
	IdleMB, DaemonMB float64
	// DaemonBaseMB is what the daemon needs with no sandbox, IdleCPU what part of a
	// processor one sandbox takes in which nothing happens, with what the daemon does for it.
	DaemonBaseMB, IdleCPU float64
	// DiskMB of one that wrote nothing, SnapshotMB of a paused one.
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
	NetworkMBps float64 // to fetch templates and snapshots
}

// Limit is how many sandboxes one thing has room for.
type Limit struct {
	What string
	Most float64
}

// Limits says how many idle sandboxes each of a node's things has room for, reserve being
// the part of the memory that stays free.
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

// Sustained is how many a node can start in a second when nothing else runs on it.
func (c Costs) Sustained(n Node) float64 { return float64(n.Processors) / c.ColdCPU }

// Validate checks that a run can be made of it.
func (c Costs) Validate() error {
	if c.ColdCPU <= 0 || c.WarmCPU <= 0 || c.RestoreCPU <= 0 || c.IdleMB <= 0 {
		return fmt.Errorf("costs: coldCPU, warmCPU, restoreCPU and idleMB must be more than 0: %+v", c)
	}
	return nil
}

// Measured is what the 2-processor machine of docs/SCALING.md gave, gVisor sandboxes of
// the base template. It was busy, so that processor times are up to twice those of a
// quiet one; the waits without a processor, and WarmCPU, can't be told apart from others'
// work there and are estimates.
var Measured = Costs{
	ColdCPU: 0.200, WarmCPU: 0.020, RestoreCPU: 0.200, PauseCPU: 0.045,
	ColdIdle: 0.012, WarmIdle: 0.002, RestoreIdle: 0.020,
	IdleMB: 23, DaemonMB: 0.4, DaemonBaseMB: 55, IdleCPU: 0.00035,
	DiskMB: 0.1, SnapshotMB: 20, Files: 4, Tasks: 18.5, Namespaces: 1,
}
