package shell

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/shell/interp"
	"github.com/carrel-dev/carrel/shell/tools"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// Machine is one simulated computer. It is safe for concurrent use: scripts may run at the same
// time, as processes do. The caller of New or Fork closes it.
type Machine struct {
	options Options // checked
	cred    vfs.Cred
	disk    *vfs.FS
	machine *interp.Machine

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup // what Start began
}

// New makes a machine. The error is an [Error] that names the wrong field of the options.
func New(o Options) (*Machine, error) {
	o, err := o.checked()
	if err != nil {
		return nil, err
	}
	made := plainTemplates
	if o.Seed != nil {
		made = seededTemplates
	}
	t, err := made()
	if err != nil {
		return nil, &Error{Op: "make a machine", Err: err}
	}
	disk := t.bare
	if o.User == defaultUser {
		disk = t.withUser
	}
	m := newMachine(o, disk)
	if err := m.furnish(); err != nil {
		m.Close()
		return nil, &Error{Op: "make a machine", Err: err}
	}
	return m, nil
}

// newMachine makes a machine whose disk is a copy of the given disk.
func newMachine(o Options, from *vfs.FS) *Machine {
	m := &Machine{options: o}
	if o.User != rootUser {
		m.cred = vfs.Cred{UID: userID, GID: userID}
	}
	disk := vfs.Options{Quota: o.Limits.Disk, Files: o.Limits.Files, FileSize: o.Limits.FileSize, Now: o.Now}
	if o.Seed != nil { // the disk uses the machine's clock and numbers too
		disk.Now = func() time.Time { return m.machine.Now() }
		disk.Random = func(b []byte) { m.machine.Random(b) }
	}
	m.disk = from.Clone(disk)
	commands := tools.All()
	if len(o.Commands) > 0 {
		commands = maps.Clone(commands)
		maps.Copy(commands, o.Commands)
	}
	m.machine = interp.New(interp.Config{FS: m.disk, Hostname: o.Hostname, Now: o.Now, Limits: o.Limits.interp(), Seed: o.Seed, CPUs: o.CPUs,
		Commands: commands, HTTP: o.HTTP})
	return m
}

// furnish adds to a new disk what the options require: the user, and files that lead to the
// caller's programs.
func (m *Machine) furnish() error {
	if m.options.User != rootUser && m.options.User != defaultUser {
		if err := interp.AddUser(m.disk, m.options.User, userID); err != nil {
			return err
		}
	}
	for name := range m.options.Commands {
		if err := m.disk.Root().WriteFile(programDir+name, interp.Stub(name), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// Fork makes another machine with the same options, whose disk is a copy of this one's as it is
// now. It takes microseconds: afterwards each machine copies the parts that it changes. Processes
// are not copied, and the limits of the disk count from zero. Mounted sources are shared: they must
// stay open until both machines are closed. A fork that runs nothing is a snapshot: fork it again
// to go back to it.
func (m *Machine) Fork() (*Machine, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, &Error{Op: "fork", Err: ErrClosed}
	}
	return newMachine(m.options, m.disk), nil
}

// MountMode says where writes below a mounted source go.
type MountMode int

// The modes of a mount.
const (
	ReadOnly  MountMode = iota // writing fails
	Overlay                    // changes stay in memory, only on this machine's disk
	WriteBack                  // changes are made to the source, which must be a vfs.Writer
)

// Mount shows a source of files to scripts at a directory, and makes the directory if it is
// missing. Package hostfs opens directories of the host as sources. The files belong to the
// machine's user. The caller closes the source after it has closed the machine.
func (m *Machine) Mount(dir string, source vfs.Source, mode MountMode) error {
	bad := func(field string, err error) error { return &Error{Op: "mount", Field: field, Err: err} }
	switch {
	case source == nil:
		return bad("source", errors.New("it is nil"))
	case mode < ReadOnly || mode > WriteBack:
		return bad("mode", fmt.Errorf("there is no mode %d", mode))
	}
	if _, ok := source.(vfs.Writer); !ok && mode == WriteBack {
		return bad("mode", errors.New("the source can't be written to"))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return bad("", ErrClosed)
	}
	dir = m.RootFiles().abs(dir)
	if err := m.disk.Root().MkdirAll(dir, 0o755); err != nil {
		return bad("dir", err)
	}
	err := m.disk.Mount(dir, source, vfs.MountOptions{ReadOnly: mode == ReadOnly, Overlay: mode == Overlay, Owner: &m.cred, Name: "host", Type: "source"})
	if err != nil {
		return bad("dir", err)
	}
	return nil
}

// Usage tells what a machine uses now.
type Usage struct {
	Steps     int64 // since the machine was made
	Memory    int64 // bytes that processes hold
	Processes int   // that run
	Disk      int64 // bytes written, beyond those of a new machine
}

// Usage measures the machine.
func (m *Machine) Usage() Usage {
	u := m.machine.Usage()
	written, _ := m.disk.Usage()
	return Usage{Steps: u.Steps, Memory: u.Memory, Processes: u.Procs, Disk: written}
}

// Close ends all scripts and returns when they have ended. It also waits for running calls of the
// caller's programs, and their context is done. It may be called more than once. The disk can still
// be read.
func (m *Machine) Close() error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.machine.Close()
	m.running.Wait()
	return nil
}
