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
	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// FDKeeper holds open files under names while the daemon is away. Package keeper's
// client is one.
type FDKeeper interface {
	// Put keeps a copy of f under name, in place of an earlier one.
	Put(ctx context.Context, name string, f *os.File) error
	// Get returns a copy of what was put under name. Error: NotFound.
	Get(ctx context.Context, name string) (*os.File, error)
	// Delete closes what is kept under name; nothing kept is no error.
	Delete(ctx context.Context, name string) error
}

// Process names a sandbox's first process for as long as the host is up. It is part of a handle.
type Process struct {
	PID     int    `json:"pid"`
	Started uint64 `json:"started"` // in ticks since boot: tells a reused pid
	BootID  string `json:"boot"`    // which boot those ticks count from
}

// NewProcess names a process that lives.
func NewProcess(pid int) Process {
	started, _ := proc.StartTime(pid)
	return Process{PID: pid, Started: started, BootID: proc.BootID()}
}

// Open opens the process if it still is that one: the pid
// is opened first and compared after, so that it can't change hands in between. Error: NotFound.
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

// Lost is the error of a sandbox that can't be adopted, now or ever.
func Lost(format string, args ...any) error {
	return &carrel.Error{Kind: carrel.NotFound, Err: fmt.Errorf(format, args...)}
}

// OpRecover is the Op of errors of a recovery.
const OpRecover = "recover sandbox"

// Decode reads a handle into a driver's record of which it gives the version and the two that every one has. Errors: Invalid,
// Unsupported for another version.
func Decode[T any](h driver.Handle, version int, of func(*T) (v int, id carrel.ID, p Process)) (*T, error) {
	rec := new(T)
	if err := json.Unmarshal(h, rec); err != nil {
		return nil, &carrel.Error{Op: OpRecover, Kind: carrel.Invalid, Field: "handle", Err: err}
	}
	v, id, p := of(rec)
	if v != version {
		return nil, &carrel.Error{Op: OpRecover, Kind: carrel.Unsupported, ID: id,
			Err: fmt.Errorf("its handle has version %d, this build knows %d", v, version)}
	}
	if _, err := carrel.ParseID(string(id)); err != nil || p.PID <= 1 {
		return nil, &carrel.Error{Op: OpRecover, Kind: carrel.Invalid, Field: "handle", Err: errors.New("names no sandbox")}
	}
	return rec, nil
}

// Relink takes a link back from the keeper, where it has a name, and connects it.
func (l *Life) Relink(ctx context.Context, k FDKeeper, name string, n driver.Network, spec driver.LinkSpec) error {
	if k == nil {
		return Lost("no keeper held its link")
	}
	f, err := k.Get(ctx, name)
	if err != nil {
		return fmt.Errorf("its link: %w", err)
	}
	link, err := n.Attach(ctx, spec, f)
	if err != nil {
		return fmt.Errorf("attach its link: %w", err)
	}
	l.SetLink(link)
	return nil
}

// Settle ends an attempt to find a sandbox again that failed with err: it is discarded where it is lost (NotFound), and let be where
// only the way to it is blocked now (Unavailable). p.Pidfd is nil if its process is not there any more. A nil err stays nil.
func (l *Life) Settle(ctx context.Context, err error, p Params) error {
	switch {
	case err == nil:
		return nil
	case carrel.KindOf(err) != carrel.NotFound:
		// It lives: no reason to end it.
		if p.Pidfd != nil {
			_ = p.Pidfd.Close()
		}
		return &carrel.Error{Op: OpRecover, Kind: carrel.Unavailable, ID: p.ID, Err: err}
	}
	l.discard(ctx, p)
	return &carrel.Error{Op: OpRecover, Kind: carrel.NotFound, ID: p.ID, Err: err}
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

// WaitDead waits for a process's end as long as ctx allows; it then closes pidfd.
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

// KillStray ends a process that no daemon knows any more, and waits for its end.
func KillStray(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil // gone
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
		return fmt.Errorf("kill leftover %d: %w", pid, err)
	}
	WaitDead(ctx, f)
	return ctx.Err()
}
