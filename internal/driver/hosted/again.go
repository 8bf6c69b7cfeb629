//go:build linux

package hosted

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// Process identifies a sandbox's first process until the host's next boot. It is part of a handle.
type Process struct {
	PID     int    `json:"pid"`
	Started uint64 `json:"started"` // ticks since boot: a reused pid differs here
	BootID  string `json:"boot"`    // the boot from which those ticks count
}

// NewProcess identifies a process that lives.
func NewProcess(pid int) Process {
	started, _ := proc.StartTime(pid)
	return Process{PID: pid, Started: started, BootID: proc.BootID()}
}

// Open opens the process if it is still the same one. It opens the pid first and compares
// afterwards, so that the pid can't change hands in between. Error: NotFound.
func (p Process) Open() (*os.File, error) {
	if p.BootID != proc.BootID() {
		return nil, Lost("the host was restarted since")
	}
	fd, err := unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, Lost("its process %d: %w", p.PID, err)
	}
	started, err := proc.StartTime(p.PID)
	if err != nil || started != p.Started || proc.Ended(fd, 0) {
		_ = unix.Close(fd)
		return nil, Lost("its process %d has ended", p.PID)
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// Lost is the error for a sandbox that can never be adopted again.
func Lost(format string, args ...any) error {
	return &carrel.Error{Kind: carrel.NotFound, Err: fmt.Errorf(format, args...)}
}

// OpRecover is the Op of errors of a recovery.
const OpRecover = "recover sandbox"

// Record is the part that all handles share. A driver's own record embeds it.
type Record struct {
	Version int       `json:"v"`
	ID      carrel.ID `json:"id"`
	Process
	Dir      string       `json:"dir"`
	Link     string       `json:"link"` // its name at the keeper
	MemoryMB int          `json:"memoryMB"`
	DiskMB   int          `json:"diskMB"` // 0 where nothing bounds it
	Group    cgroup.Paths `json:"cgroup"`
	// Owner is the ID of the data directory that the sandbox belongs to. Empty in the handles of
	// older builds.
	Owner string `json:"owner,omitempty"`
}

// NewRecord describes a sandbox that was just started.
func (o *Options) NewRecord(version int, s driver.Spec, link string, pid int,
	group *cgroup.Group) Record {
	return Record{Version: version, Owner: o.Identity, ID: s.ID, Process: NewProcess(pid), Dir: s.Dir,
		Link:     link,
		MemoryMB: s.Limits.MemoryMB, DiskMB: s.Limits.DiskMB, Group: group.Paths()}
}

// Common returns the record itself. A record that embeds it has this method, too.
func (r *Record) Common() *Record { return r }

// Encode writes a driver's record as a handle.
func Encode(record any) driver.Handle {
	b, err := json.Marshal(record)
	if err != nil {
		panic("hosted: handle: " + err.Error()) // plain fields always encode
	}
	return b
}

// Decode reads a handle into a driver's record. It touches nothing else. Errors: Invalid,
// Unsupported for another version.
func Decode[T any, P interface {
	*T
	Common() *Record
}](h driver.Handle, version int) (*T, error) {
	rec := new(T)
	if err := json.Unmarshal(h, rec); err != nil {
		return nil, &carrel.Error{Op: OpRecover, Kind: carrel.Invalid, Field: "handle", Err: err}
	}
	r := P(rec).Common()
	if r.Version != version {
		return nil, &carrel.Error{Op: OpRecover, Kind: carrel.Unsupported, ID: r.ID,
			Err: fmt.Errorf("its handle has version %d, this build knows %d", r.Version, version)}
	}
	if _, err := carrel.ParseID(string(r.ID)); err != nil || r.PID <= 1 {
		return nil, &carrel.Error{Op: OpRecover, Kind: carrel.Invalid, Field: "handle", Err: errors.New("names no sandbox")}
	}
	return rec, nil
}

// Adopt finds a sandbox again by its record and connects its link with reopen ([Links.Reopen]). The
// driver then calls [Life.Begin] with the same params. Adopt calls params with a nil pidfd if the
// process is gone. Errors: NotFound when the sandbox is lost; Adopt then removes its leftovers.
// Unavailable when the sandbox lives but can't be reached now; Adopt then touches nothing.
func (l *Life) Adopt(ctx context.Context, r *Record, reopen func(context.Context) error, params func(pidfd *os.File) Params) (*os.File, error) {
	pidfd, err := r.Open()
	if err == nil {
		err = reopen(ctx)
	}
	switch {
	case err == nil:
		return pidfd, nil
	case carrel.KindOf(err) != carrel.NotFound:
		CloseAll(pidfd)
		return nil, &carrel.Error{Op: OpRecover, Kind: carrel.Unavailable, ID: r.ID, Err: err}
	}
	if pidfd != nil {
		err = Lost("its kernel still ran, but its network link was lost, and a sandbox is never left without its network: "+
			"whatever held the link (the daemon, the keepers) was killed at once: %w", err)
	}
	l.discard(ctx, params(pidfd))
	return nil, &carrel.Error{Op: OpRecover, Kind: carrel.NotFound, ID: r.ID, Err: err}
}

// discard ends and removes a sandbox that can't be adopted.
func (l *Life) discard(ctx context.Context, p Params) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), UndoTime)
	defer cancel()
	if p.Pidfd != nil {
		p.Kill()
		WaitDead(ctx, p.Pidfd)
		proc.Reap(p.Pidfd, p.PID)
		_ = p.Pidfd.Close()
	}
	_ = l.CloseLink()
	if err := p.Remove(ctx); err != nil {
		p.Log.Warn("leftover of a lost sandbox", "sandbox", p.ID, "err", err)
	}
}

// WaitDead waits for a process's end as long as ctx allows, and then closes pidfd.
func WaitDead(ctx context.Context, pidfd *os.File) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		proc.Wait(pidfd)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		_ = pidfd.Close() // ends the wait
		<-done
	}
}
