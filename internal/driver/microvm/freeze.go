//go:build linux

package microvm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/linux/proc"
)

var _ driver.Freezer = (*Instance)(nil)

// Times of a freeze.
const (
	flushTime = 30 * time.Second // bounds the guest's writing to the disk
	tellTime  = 5 * time.Second  // bounds other requests to the guest
	stopLook  = time.Millisecond // between two looks at the VMM's threads
)

// Freeze implements driver.Freezer. It stops the VMM's process. So time passes for the machine: after
// the thaw its clocks are right.
func (in *Instance) Freeze(ctx context.Context) error {
	return in.withIce(ctx, "freeze sandbox", func() error {
		if in.isFrozen() {
			return nil
		}
		// A snapshot of a frozen sandbox can't ask for this any more.
		if err := in.tell(ctx, flushTime, guest.MachineRequest{Flush: true}); err != nil {
			in.d.log.Warn("a guest does not write to its disk before a freeze", "sandbox", in.rec.ID, "err", err)
		}
		return in.setIce(ctx, true)
	})
}

// Thaw implements driver.Freezer.
func (in *Instance) Thaw(ctx context.Context) error {
	return in.withIce(ctx, "thaw sandbox", func() error {
		if err := in.setIce(ctx, false); err != nil {
			return err
		}
		if in.adopted { // its first thaw may follow a daemon's death
			in.adopted = false
			in.wake(ctx)
		}
		return nil
	})
}

// withIce runs do while nothing else stops or saves the machine.
func (in *Instance) withIce(ctx context.Context, op string, do func() error) error {
	select {
	case in.ice <- struct{}{}:
		defer func() { <-in.ice }()
	case <-ctx.Done():
		return &carrel.Error{Op: op, Kind: carrel.TimedOut, ID: in.rec.ID, Err: context.Cause(ctx)}
	}
	return in.explain(ctx, op, do())
}

// explain makes an error of a sandbox's method.
func (in *Instance) explain(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	var known *carrel.Error
	select {
	case <-in.Ended():
		return &carrel.Error{Op: op, Kind: carrel.Unavailable, ID: in.rec.ID, Err: errors.New(in.Exit().Message)}
	default:
	}
	kind := carrel.Internal
	switch {
	case errors.As(err, &known):
		e := *known
		e.Op, e.ID = op, in.rec.ID
		return &e
	case ctx.Err() != nil:
		kind = carrel.TimedOut
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		kind = carrel.Exhausted
	}
	return &carrel.Error{Op: op, Kind: kind, ID: in.rec.ID, Err: err}
}

// setIce stops or continues the VMM. It returns when that is done.
func (in *Instance) setIce(ctx context.Context, frozen bool) error {
	signal := unix.SIGCONT
	if frozen {
		signal = unix.SIGSTOP
	}
	if err := unix.PidfdSendSignal(int(in.Pidfd.Fd()), signal, nil, 0); err != nil {
		return os.NewSyscallError("pidfd_send_signal", err)
	}
	for {
		select {
		case <-in.Ended():
			return errors.New("the sandbox has ended")
		default:
		}
		if in.isFrozen() == frozen {
			return nil
		}
		select {
		case <-time.After(stopLook):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// isFrozen reports whether all threads of the VMM are stopped.
func (in *Instance) isFrozen() bool {
	dir := filepath.Join("/proc", strconv.Itoa(in.rec.PID), "task")
	tasks, err := os.ReadDir(dir)
	if err != nil || len(tasks) == 0 {
		return false
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			continue
		}
		if st, err := proc.ReadStat(tid); err == nil && st.State != 'T' {
			return false
		}
	}
	return true
}

// The machine's clock is late by the way of the request that sets it.
const (
	clockError = 20 * time.Millisecond
	clockTries = 3
)

// setClock sets the machine's clock, again if that took long.
func (in *Instance) setClock(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	c := guest.NewConn(in.Dial, guest.ConnOptions{ID: in.rec.ID})
	defer c.Close()
	for range clockTries {
		began := time.Now()
		if err := c.Machine(ctx, guest.MachineRequest{Time: began}); err != nil {
			if !in.hasEnded() {
				in.d.log.Warn("a machine's clock is not set", "sandbox", in.rec.ID, "err", err)
			}
			return
		}
		if time.Since(began) <= clockError {
			return
		}
	}
}

// tell has the guest do something with its kernel.
func (in *Instance) tell(ctx context.Context, limit time.Duration, req guest.MachineRequest) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c := guest.NewConn(in.Dial, guest.ConnOptions{ID: in.rec.ID})
	defer c.Close()
	return c.Machine(ctx, req)
}
