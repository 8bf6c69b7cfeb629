package interp

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// Limits bounds what a machine's processes may use. A zero field means no limit,
// except for Depth.
type Limits struct {
	Procs  int           // processes at once
	Memory int64         // bytes held by variables, buffers and scripts of all processes
	Output int64         // bytes that one started process and its children may write to its pipes or terminal
	Steps  int64         // commands and loop rounds of one started process and its children
	Depth  int           // calls within calls: functions, substitutions, eval, scripts; 0 is 512
	FDs    int           // descriptors of one process; 0 is 1024
	Files  int64         // open files of all processes
	Wall   time.Duration // how long one started process and its children may run
}

// Limit is a bound that ends a process that reaches it, and everything that the process started.
// The other bounds (processes, descriptors, open files, the disk) only refuse the call, as a kernel
// does, and the script goes on.
type Limit string

// The bounds that end a process.
const (
	LimitMemory Limit = "memory"
	LimitOutput Limit = "output"
	LimitSteps  Limit = "steps"
	LimitTime   Limit = "time"  // Limits.Wall
	LimitFault  Limit = "fault" // no bound: the shell or one of its programs has a bug and panicked
)

// Config describes a new [Machine].
type Config struct {
	// FS is its disk. Required; see [Install].
	FS *vfs.FS
	// Hostname is its name until SetHostname.
	Hostname string
	// Now is its clock; nil is time.Now.
	Now    func() time.Time
	Limits Limits
	// Seed makes the machine deterministic: the same script writes the same bytes every time. Its
	// clock begins at a fixed time and moves only while its processes sleep. Its random numbers and
	// pids follow from the seed. Its processes run one at a time. Now is not used then. Nil turns
	// this off.
	Seed *uint64
	// CPUs is the number that nproc prints; 0 is 1.
	CPUs int
	// Commands are programs of package tool, by name. They are added to the programs of this
	// package; see Install.
	Commands map[string]tool.Command
	// Lookup finds programs that can appear and disappear, in addition to Commands. Nil finds none.
	// A file made by Stub runs such a program.
	Lookup func(name string) tool.Command
	// HTTP sends the programs' requests; nil means no network.
	HTTP tool.HTTP
	// Token asks the machine's host for an identity token by its name or its audience. Nil means
	// that there is no host.
	Token func(ctx context.Context, name, audience string) (string, error)
}

// Machine is one simulated computer. Close ends all its processes.
type Machine struct {
	fs       *vfs.FS
	now      func() time.Time
	limits   Limits
	cpus     int
	token    func(ctx context.Context, name, audience string) (string, error)
	builtins map[string]command
	tools    map[string]command
	commands map[string]tool.Command
	lookup   func(name string) tool.Command
	http     tool.HTTP
	started  time.Time
	sched    *sched // nil unless deterministic

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mem   atomic.Int64
	steps atomic.Int64
	files atomic.Int64

	mu       sync.Mutex
	hostname string
	lastPID  int
	procs    map[int]*proc
	closed   bool
}

// builtins and tools are the command tables, which never change.
var (
	builtins = sync.OnceValue(builtinTable)
	tools    = sync.OnceValue(toolTable)
)

// New starts a machine without processes.
func New(c Config) *Machine {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Limits.Depth <= 0 {
		c.Limits.Depth = 512
	}
	if c.Limits.FDs <= 0 {
		c.Limits.FDs = 1024
	}
	var turns *sched
	if c.Seed != nil {
		turns = newSched(*c.Seed)
		c.Now = turns.clock
	}
	m := &Machine{fs: c.FS, now: c.Now, limits: c.Limits, cpus: max(c.CPUs, 1), token: c.Token, hostname: c.Hostname,
		lastPID: 1, procs: map[int]*proc{}, builtins: builtins(), tools: tools(),
		commands: c.Commands, lookup: c.Lookup, http: c.HTTP, started: c.Now(), sched: turns}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m
}

// Now is the machine's clock.
func (m *Machine) Now() time.Time { return m.now() }

// Random fills b with the machine's random bytes. With a seed they are always the same.
func (m *Machine) Random(b []byte) {
	if m.sched != nil {
		m.sched.random(b)
		return
	}
	_, _ = rand.Read(b) // never fails
}

// seed32 returns the start value of a shell's RANDOM.
func (m *Machine) seed32() uint32 {
	var b [4]byte
	m.Random(b[:])
	return binary.LittleEndian.Uint32(b[:])
}

// names lists all programs, sorted.
func (m *Machine) names() []string {
	names := map[string]bool{}
	for name := range m.tools {
		names[name] = true
	}
	for name := range m.commands {
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// FS returns the machine's disk.
func (m *Machine) FS() *vfs.FS { return m.fs }

// View returns the disk with the rights of a user, seen from outside of all processes. It shows the
// machine's own /proc.
func (m *Machine) View(c vfs.Cred) vfs.View { return m.fs.As(c).For(m) }

// Hostname returns the machine's name.
func (m *Machine) Hostname() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hostname
}

// SetHostname renames the machine.
func (m *Machine) SetHostname(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hostname = name
}

// Usage tells what a machine uses now.
type Usage struct {
	Steps  int64 // commands and loop rounds since the start
	Memory int64 // bytes held by processes; files are not counted
	Procs  int   // processes that run
}

// Usage measures the machine.
func (m *Machine) Usage() Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Usage{Steps: m.steps.Load(), Memory: m.mem.Load(), Procs: len(m.procs)}
}

// Close kills every process and returns when all have ended.
func (m *Machine) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	if m.sched != nil {
		m.sched.end()
	}
	m.wg.Wait()
}

// hold makes Close wait until wg.Done is called. It reports false for a closed machine.
func (m *Machine) hold() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.wg.Add(1)
	}
	return !m.closed
}

// newProc makes a process with a new pid. parent is nil for a process that Start made. The error is
// EAGAIN over the limit of processes, and ECANCELED on a closed machine.
func (m *Machine) newProc(ctx context.Context, parent *proc, args []string) (*proc, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, syscall.ECANCELED
	}
	if m.limits.Procs > 0 && len(m.procs) >= m.limits.Procs {
		return nil, syscall.EAGAIN
	}
	for {
		if m.lastPID++; m.lastPID > 4<<20 {
			m.lastPID = 2
		}
		if m.procs[m.lastPID] == nil {
			break
		}
	}
	p := &proc{m: m, parent: parent, pid: m.lastPID, pgid: m.lastPID, ppid: 1, args: args, started: m.now(),
		done: make(chan struct{}), wake: make(chan struct{}, 1), tree: &tree{}}
	if parent != nil {
		p.ppid, p.pgid, p.tree, p.uid, p.turn = parent.pid, parent.pgid, parent.tree, parent.uid, parent.turn
	}
	inner, cancel := context.WithCancelCause(ctx)
	p.ctx, p.cancel = &procCtx{inner, p}, cancel
	p.tree.procs.Add(1)
	m.procs[p.pid] = p
	return p, nil
}

// forget removes an ended process from the table.
func (m *Machine) forget(p *proc) {
	m.mu.Lock()
	delete(m.procs, p.pid)
	m.mu.Unlock()
}

// is sets the arguments and the user of a process that others can already see.
func (p *proc) is(args []string, uid uint32) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	p.args, p.uid = args, uid
}

// who returns what is told.
func (p *proc) who() (args []string, uid uint32) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	return p.args, p.uid
}

// table lists the running processes by pid.
func (m *Machine) table() []*proc {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]*proc, 0, len(m.procs))
	for _, p := range m.procs {
		out = append(out, p)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].pid < out[j].pid })
	return out
}

// signal sends a signal to a process (pid > 0) or a group (pid < 0).
func (m *Machine) signal(pid int, sig int, uid uint32) error {
	var hit []*proc
	m.mu.Lock()
	for _, p := range m.procs {
		if p.pid == pid || pid < 0 && p.pgid == -pid || pid == 0 {
			hit = append(hit, p)
		}
	}
	m.mu.Unlock()
	if len(hit) == 0 {
		return syscall.ESRCH
	}
	var err error
	for _, p := range hit {
		if _, owner := p.who(); uid != 0 && owner != uid {
			err = syscall.EPERM
			continue
		}
		p.deliver(sig)
	}
	return err
}

// charge takes n bytes from the machine's memory. A negative n gives them back.
func (m *Machine) charge(n int64) bool {
	if m.mem.Add(n) > m.limits.Memory && n > 0 && m.limits.Memory > 0 {
		m.mem.Add(-n)
		return false
	}
	return true
}

// Account is a line of /etc/passwd.
type Account struct {
	Name, Home, Shell string
	UID, GID          uint32
}

// Accounts reads /etc/passwd. It skips malformed lines.
func (m *Machine) Accounts() []Account {
	data, err := m.fs.Root().ReadFile("/etc/passwd")
	if err != nil {
		return nil
	}
	var out []Account
	for line := range strings.SplitSeq(string(data), "\n") {
		f := strings.Split(line, ":")
		if len(f) < 7 {
			continue
		}
		a := Account{Name: f[0], Home: f[5], Shell: f[6]}
		if _, err := fmt.Sscanf(f[2]+" "+f[3], "%d %d", &a.UID, &a.GID); err == nil {
			out = append(out, a)
		}
	}
	return out
}

// GroupName returns the name of a group, or its number.
func (m *Machine) GroupName(gid uint32) string {
	data, _ := m.fs.Root().ReadFile("/etc/group") // without the file, each group is shown by its number
	id := fmt.Sprint(gid)
	for line := range strings.SplitSeq(string(data), "\n") {
		if f := strings.Split(line, ":"); len(f) >= 3 && f[2] == id {
			return f[0]
		}
	}
	return id
}

// UserName returns the name of a user, or its number.
func (m *Machine) UserName(uid uint32) string {
	for _, a := range m.Accounts() {
		if a.UID == uid {
			return a.Name
		}
	}
	return fmt.Sprint(uid)
}
