package ns

import (
	"context"
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/linux/proc"
)

var _ driver.Freezer = (*Instance)(nil)

// Freeze implements driver.Freezer.
func (in *Instance) Freeze(ctx context.Context) error { return in.setIce(ctx, "freeze sandbox", true) }

// Thaw implements driver.Freezer.
func (in *Instance) Thaw(ctx context.Context) error { return in.setIce(ctx, "thaw sandbox", false) }

// setIce stops or continues all processes.
func (in *Instance) setIce(ctx context.Context, op string, frozen bool) error {
	fail := func(kind carrel.Kind, err error) error {
		return &carrel.Error{Op: op, Kind: kind, ID: in.rec.ID, Err: err}
	}
	select {
	case in.iceLock <- struct{}{}:
		defer func() { <-in.iceLock }()
	case <-ctx.Done():
		return fail(carrel.TimedOut, context.Cause(ctx))
	}
	return in.turn(ctx, frozen, fail)
}

// turn is setIce with the lock held.
func (in *Instance) turn(ctx context.Context, frozen bool, fail func(carrel.Kind, error) error) error {
	for {
		select {
		case <-in.Ended():
			return fail(carrel.Unavailable, errors.New(in.Exit().Message))
		default:
		}
		done, err := in.step(frozen)
		if err != nil {
			return fail(carrel.Internal, err)
		}
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			_, _ = in.step(false) // half frozen is worse than running
			return fail(carrel.TimedOut, context.Cause(ctx))
		case <-time.After(pauseTime):
		}
	}
}

// step does the part that can be done at once, and reports whether that was everything.
func (in *Instance) step(frozen bool) (bool, error) {
	if in.ice.dir != "" {
		return in.ice.set(frozen)
	}
	return in.signalAll(frozen)
}

// isFrozen reports whether the sandbox is stopped now. The caller holds in.iceLock.
func (in *Instance) isFrozen() bool {
	if in.ice.dir == "" {
		st, err := proc.ReadStat(in.rec.PID)
		return err == nil && stopped(in.rec.PID, st)
	}
	file, want := "freezer.state", "THAWED\n"
	if in.ice.v2 {
		file, want = "cgroup.freeze", "0\n"
	}
	b, err := os.ReadFile(in.ice.dir + "/" + file)
	return err == nil && string(b) != want
}

// signalAll stops every process with a signal that no process can ignore. Process 1 comes first, so
// that it gets no new orphans to reap. A program that was already stopped continues with the others
// at the thaw.
func (in *Instance) signalAll(frozen bool) (all bool, err error) {
	own, err := os.Readlink("/proc/" + strconv.Itoa(in.rec.PID) + "/ns/pid")
	if err != nil {
		return false, err
	}
	sig := unix.SIGCONT
	if frozen {
		sig = unix.SIGSTOP
	}
	all = true
	for _, pid := range proc.Tree(in.rec.PID) {
		st, err := proc.ReadStat(pid)
		if err != nil || st.State == 'Z' || (st.State == 'T') == frozen && st.State != 'D' {
			continue
		}
		// A process that waits for a stopped child gets the signal, too. It obeys when its wait is
		// over.
		if stopped(pid, st) != frozen {
			all = false
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		// Before it was opened, the pid may have passed to another process; after that it can't. So
		// check its namespace now.
		if ns, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/pid"); err == nil && ns == own {
			_ = unix.PidfdSendSignal(fd, sig, nil, 0)
		}
		unix.Close(fd)
	}
	return all, nil
}

// stopped reports whether a process can't go on. A child that is stopped between vfork and exec
// also stops its parent: the parent can't obey a signal until the child executes.
func stopped(pid int, st proc.Stat) bool {
	if st.State != 'D' {
		return st.State == 'T'
	}
	for _, child := range proc.Tree(pid)[1:] {
		if c, err := proc.ReadStat(child); err == nil && c.State == 'T' {
			return true
		}
	}
	return false
}

// pauseTime is the pause between two checks while the kernel works.
const pauseTime = 5 * time.Millisecond

func pause() { time.Sleep(pauseTime) }
