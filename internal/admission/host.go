package admission

import (
	"fmt"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
)

// HostOptions says how much of the machine is kept free of new sandboxes.
type HostOptions struct {
	// Dir is a directory on the disk that sandboxes write to.
	Dir string
	// MemoryReserve is the memory, in bytes, that must stay free besides the memory for sandboxes
	// that are just starting; 0 is a twentieth of the machine's, at least 128 MiB and at most 1
	// GiB.
	MemoryReserve int64
	// Overcommit bounds the sum of all sandboxes' memory limits, as a multiple of the machine's
	// memory; 0 is no bound. Most sandboxes use a small part of their limit.
	Overcommit float64
	// Committed is the sum of the memory limits of all living sandboxes, in MiB.
	Committed func() int
	// DiskReserve is the disk space, in bytes, that must stay free; 0 is 256 MiB.
	DiskReserve int64
	// Files is how many descriptors must stay free; 0 is 256.
	Files int
	// Read measures the machine; nil reads it from the kernel.
	Read func(dir string) (Machine, error)
}

// Machine is a machine's free resources. A field that is not known is 0, and so is its total.
type Machine struct {
	Memory      int64 `json:"memory"` // bytes; of the container, if it has a limit
	MemoryTotal int64 `json:"memoryTotal"`
	Disk        int64 `json:"disk"` // bytes
	DiskTotal   int64 `json:"diskTotal"`
	// Inodes are those of the same disk; a disk that makes them as needed has a total of 0.
	Inodes      int64  `json:"inodes"`
	InodesTotal int64  `json:"inodesTotal"`
	Files       int    `json:"files"` // descriptors of this process
	FilesTotal  int    `json:"filesTotal"`
	Tasks       int    `json:"tasks"` // processes and threads, of the whole machine
	TasksTotal  int    `json:"tasksTotal"`
	TasksBound  string `json:"-"` // the sysctl that bounds them
}

// Host checks whether the machine has room, before the kernel must kill processes. It is safe for
// concurrent use.
type Host struct {
	opts HostOptions

	mu   sync.Mutex
	at   time.Time
	last Machine
}

// NewHost returns a check for [Options.Check].
func NewHost(o HostOptions) *Host {
	if o.Read == nil {
		o.Read = readMachine
	}
	if o.DiskReserve == 0 {
		o.DiskReserve = 256 << 20
	}
	if o.Files == 0 {
		o.Files = 256
	}
	return &Host{opts: o}
}

const (
	readEvery    = 200 * time.Millisecond // measuring costs some 50 µs
	startMemory  = 48 << 20               // that a starting sandbox may still take
	startFiles   = 24
	startTasks   = 32
	tasksShare   = 4   // 1/n of all tasks stays free: a sandbox that gets none dies
	keptInodes   = 512 // inodes that stay free
	machineRetry = 5 * time.Second
)

// Check implements [Options.Check]. Errors: Unavailable, with Field naming the missing resource.
func (h *Host) Check(r Request, starting int) error {
	m, err := h.machine()
	if err != nil {
		return nil // without a measurement, nothing is refused
	}
	next := int64(starting) + 1
	fail := func(field, hint string, err error) error {
		return &carrel.Error{Op: r.Op, Kind: carrel.Unavailable, Field: field, Err: err, Hint: hint, RetryAfter: machineRetry}
	}
	if reserve := h.reserve(m); m.MemoryTotal > 0 && m.Memory < reserve+next*startMemory {
		return fail("memory", "pause or kill sandboxes, lower --memory-reserve, or give the machine more memory",
			fmt.Errorf("the machine has %s of memory left of %s: %s are kept free, and %d that are just starting take up to %s each",
				size(m.Memory), size(m.MemoryTotal), size(reserve), starting, size(startMemory)))
	}
	if f := h.opts.Overcommit; f > 0 && h.opts.Committed != nil && m.MemoryTotal > 0 {
		all, most := h.opts.Committed()+r.MemoryMB, int(f*float64(m.MemoryTotal>>20))
		if all > most {
			return fail("memory", "pause or kill sandboxes, give new ones a lower memoryMB, or raise --memory-overcommit",
				fmt.Errorf("the limits of all sandboxes would come to %d MiB of memory, and %g times the machine's, %d MiB, is the most (--memory-overcommit)",
					all, f, most))
		}
	}
	if m.DiskTotal > 0 && m.Disk < h.opts.DiskReserve {
		return fail("disk", "free some of it, or delete snapshots",
			fmt.Errorf("the disk of %s has %s left, of which %s are kept free", h.opts.Dir, size(m.Disk), size(h.opts.DiskReserve)))
	}
	if m.InodesTotal > 0 && m.Inodes < keptInodes {
		return fail("inodes", "remove files on that disk, or make it with more inodes (mkfs.ext4 -N)",
			fmt.Errorf("the disk of %s has %d inodes left of %d, of which %d are kept free", h.opts.Dir,
				m.Inodes, m.InodesTotal, keptInodes))
	}
	if m.FilesTotal > 0 && m.Files < h.opts.Files+int(next)*startFiles {
		return fail("files", "raise the daemon's limit on open files (LimitNOFILE= in its unit, or ulimit -Hn)",
			fmt.Errorf("%d descriptors are left of the %d that the daemon may open", m.Files, m.FilesTotal))
	}
	if reserve := m.TasksTotal / tasksShare; m.TasksTotal > 0 && m.Tasks < reserve+int(next)*startTasks {
		return fail("tasks", "sysctl -w "+m.TasksBound+"=4194304 lets the machine have more, else pause or kill sandboxes",
			fmt.Errorf("the machine may run %d processes and threads (%s), has %d left, and a quarter is kept free for what sandboxes start",
				m.TasksTotal, m.TasksBound, m.Tasks))
	}
	return nil
}

// Machine returns the machine's free resources, as measured a moment ago; nil if they are not known.
func (h *Host) Machine() *Machine {
	m, err := h.machine()
	if err != nil {
		return nil
	}
	return &m
}

// reserve is the memory that must stay free.
func (h *Host) reserve(m Machine) int64 {
	if h.opts.MemoryReserve > 0 {
		return h.opts.MemoryReserve
	}
	return min(max(m.MemoryTotal/20, 128<<20), 1<<30)
}

// machine measures the machine, unless the last measurement is recent.
func (h *Host) machine() (Machine, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := time.Now(); h.at.IsZero() || now.Sub(h.at) >= readEvery {
		m, err := h.opts.Read(h.opts.Dir)
		if err != nil {
			return Machine{}, err
		}
		h.last, h.at = m, now
	}
	return h.last, nil
}

// size formats bytes for people.
func size(n int64) string {
	if n >= 10<<30 {
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
