//go:build linux

package microvm

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// recordVersion is the version of the handle's form.
const recordVersion = 1

// record is the content of the handle: everything that is needed to find a sandbox again.
type record struct {
	hosted.Record
	MTU       int   `json:"mtu"`
	VMMMemory int64 `json:"vmmMemory"` // bytes that the VMM may use
	// These are needed for snapshots. They are empty in handles of older builds.
	Inside carrel.Limits `json:"inside"`          // the machine's
	Root   string        `json:"root,omitempty"`  // identity of the root image
	Whole  string        `json:"whole,omitempty"` // instead of it, the image that was not whole yet
	Guest  string        `json:"guest,omitempty"` // identity of the guest's image
	Build  string        `json:"build,omitempty"` // of its memory
	CPU    string        `json:"cpu,omitempty"`
	Engine string        `json:"engine,omitempty"` // empty is QEMU
}

// Instance is one sandbox.
type Instance struct {
	hosted.Life
	d      *Driver
	engine engine
	rec    record
	group  *cgroup.Group

	console, vmmLog *os.File // nil after Recover

	unram   sync.Once // its use of ram ends once
	ram     *sealed   // what the VMM maps; nil if it booted, and after Recover
	memory  hosted.MemoryGuard
	ice     chan struct{} // one entry: who stops or saves the machine
	adopted bool          // an earlier daemon had it, and nothing was thawed since; ice guards it
	up      atomic.Bool   // the machine has answered a connection, or refused one
	clocked sync.Once     // its clock was set, or is being set
}

var _ driver.Instance = (*Instance)(nil)

// newInstance watches a machine that was just started.
func (d *Driver) newInstance(m *machine, l *launch) *Instance {
	in := &Instance{d: d, engine: m.engine, group: l.group, console: l.console, vmmLog: l.vmmLog, ice: make(chan struct{}, 1), rec: record{
		Record: d.opts.NewRecord(recordVersion, l.spec, d.links.Name(l.spec.ID), l.pid, l.group),
		MTU:    l.order.MTU, VMMMemory: m.vmmMemory(l.spec.Limits.MemoryMB), Inside: l.spec.Limits,
		Root: l.root, Whole: l.spec.Root.Whole, Guest: l.guest, Build: m.build(), CPU: m.cpu,
		Engine: m.engine.name(),
	}}
	if l.from != nil && l.from.ram != nil {
		in.ram = l.from.ram
	}
	in.begin(l.pidfd)
	return in
}

// begin starts the watch.
func (in *Instance) begin(pidfd *os.File) {
	in.d.live.Enter(in)
	in.Begin(in.params(pidfd))
}

func (in *Instance) params(pidfd *os.File) hosted.Params {
	return hosted.Params{
		ID: in.rec.ID, PID: in.rec.PID, Pidfd: pidfd, Log: in.d.log, Guard: in.guardMemory,
		Kill: func() { proc.Kill(pidfd) }, Reason: in.reason, Remove: in.remove, Forget: func() { in.d.live.Strike(in) },
	}
}

// The times of one attempt to reach a machine that may still boot.
const (
	firstAttempt = 100 * time.Millisecond
	lastAttempt  = 2 * time.Second
)

// Dial implements driver.Instance. While a machine boots, its card drops what it is sent. TCP would
// ask again after a second, then after two more, then after four. So until the machine has answered
// once, each attempt is short and a new one follows it.
func (in *Instance) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	for limit := firstAttempt; !in.up.Load(); limit = min(limit+limit/8, lastAttempt) {
		attempt, cancel := context.WithTimeout(ctx, limit)
		c, err := in.Life.Dial(attempt, port)
		late := attempt.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil || errors.Is(err, syscall.ECONNREFUSED) {
			in.up.Store(true)
		}
		if err == nil || !late {
			return in.met(c, err)
		}
		select {
		case <-in.Ended(): // Life.Dial says why
			return in.Life.Dial(ctx, port)
		case <-in.Left(): // the driver was closed
			return in.Life.Dial(ctx, port)
		default:
		}
	}
	return in.met(in.Life.Dial(ctx, port))
}

// met looks at the end of a dial. The first connection to a machine that booted says that its clock can
// be set: the device that it read the time from knows seconds.
func (in *Instance) met(c net.Conn, err error) (net.Conn, error) {
	if err == nil {
		in.clocked.Do(func() { go in.setClock(context.Background()) })
	}
	return c, err
}

// Handle implements driver.Instance.
func (in *Instance) Handle() driver.Handle { return hosted.Encode(in.rec) }

// remove removes all traces of a dead sandbox.
func (in *Instance) remove(ctx context.Context) error {
	err := in.d.links.Drop(ctx, in.rec.Link)
	removeFiles(in.rec.Dir)
	err = errors.Join(err, in.group.Destroy(ctx))
	hosted.CloseAll(in.console, in.vmmLog)
	in.leaveMemory()
	return err
}

// leaveMemory ends the use of the shared memory. The VMM has its own descriptor.
func (in *Instance) leaveMemory() { in.unram.Do(func() { in.d.memories.leave(in.ram) }) }

// reason tells why the machine ended. It must run while the control group exists.
func (in *Instance) reason(killed bool, status string) driver.Exit {
	return hosted.Ending{
		Killed: killed, Status: status, First: "the sandbox's machine", Events: in.group.Events(),
		OverMemory: in.memory.Passed(), MemoryMB: in.rec.MemoryMB,
		PidsReached: "its threads on the host had reached their limit", Words: in.lastWords,
	}.Exit()
}

// lastWords returns the last output of the VMM, then that of the machine's console.
func (in *Instance) lastWords() string { return lastWords(in.vmmLog, consoleText(in.console)) }

// lastWords is Instance.lastWords for a VMM's log and the text of a console.
func lastWords(vmmLog *os.File, console string) string {
	return strings.Trim(words([]byte(hosted.GuestWords(vmmLog)))+"\n"+words([]byte(console)), "\n ")
}

// guardMemory bounds the VMM's memory if no control group does.
func (in *Instance) guardMemory() (stop func()) {
	if !hosted.GuardsMemory(in.d.groups) {
		return func() {}
	}
	return in.memory.Watch(in.rec.VMMMemory, func() int64 { return resident(in.rec.PID) }, in.Kill)
}

// resident is the memory of a VMM, without the pages of files, which the kernel can drop.
func resident(pid int) int64 { return hosted.StatusBytes(pid, "RssAnon", "RssShmem") }

// Stats implements driver.Instance. Memory and processor time are the VMM's, which are the machine's
// and its own; the limit of memory is the machine's.
func (in *Instance) Stats(context.Context) (driver.Stats, error) {
	s := hosted.Meter{Hierarchy: in.d.groups, Group: in.group, Processes: in.processStats}.Read()
	s.MemoryLimit, s.DiskLimit = int64(in.rec.MemoryMB)<<20, int64(in.rec.DiskMB)<<20
	s.Disk = hosted.FileUse(filepath.Join(in.rec.Dir, diskFile))
	return s, nil
}

// processStats measures the VMM, which is one process.
func (in *Instance) processStats() (s driver.Stats) {
	hosted.EachProcess(in.rec.PID, func(pid int, st proc.Stat) {
		s.CPU += st.CPU + st.Children
		s.Pids += st.Threads
		s.Memory += resident(pid)
	})
	return s
}
