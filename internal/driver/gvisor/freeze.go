package gvisor

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
)

var (
	_ driver.Freezer = (*Instance)(nil)
	_ driver.Rouser  = (*Instance)(nil)
)

// The sentry counts pauses, and dies if it is resumed more often than it was paused. So the driver
// must know whether the sandbox is paused. It remembers that. After Recover it looks at the state
// of the first process inside, see isFrozen.

// iceState says whether a sandbox is known to be frozen.
type iceState int

const (
	iceUnknown iceState = iota // only an earlier process knew
	iceThawed
	iceFrozen
)

// Freeze implements driver.Freezer.
func (in *Instance) Freeze(ctx context.Context) error {
	return in.wrap("freeze sandbox", in.setIce(ctx, iceFrozen, boot.ContMgrPause))
}

// Thaw implements driver.Freezer.
func (in *Instance) Thaw(ctx context.Context) error {
	return in.wrap("thaw sandbox", in.setIce(ctx, iceThawed, boot.ContMgrResume))
}

// Rouse implements driver.Rouser. The sentry lets a program stop the sandbox's first process, which
// Linux does not.
func (in *Instance) Rouse(ctx context.Context) error {
	return in.wrap("rouse the guest", in.call(ctx, boot.ContMgrSignal,
		&boot.SignalArgs{CID: string(in.rec.ID), Signo: int32(unix.SIGCONT), Mode: boot.DeliverToProcess},
		nil))
}

// setIce calls method of the sentry unless the sandbox is in the wanted state already.
func (in *Instance) setIce(ctx context.Context, want iceState, method string) error {
	select {
	case in.iceLock <- struct{}{}:
		defer func() { <-in.iceLock }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if in.ice == iceUnknown {
		frozen, err := in.isFrozen(ctx)
		if err != nil {
			return err
		}
		in.ice = iceThawed
		if frozen {
			in.ice = iceFrozen
		}
	}
	if in.ice == want {
		select {
		case <-in.Ended():
			return in.endedError()
		default:
			return nil
		}
	}
	was := in.ice
	in.ice = iceUnknown // in case the call fails
	err := in.callToEnd(ctx, method, nil, nil)
	switch {
	case err == nil:
		in.ice = want
	case carrel.KindOf(err) == carrel.Exhausted: // call says so only before it sends anything
		in.ice = was
	}
	return err
}

// The pause between isFrozen's checks.
const (
	frozenLooks = 12
	frozenPause = 25 * time.Millisecond
)

// isFrozen reads the state of the sandbox's first process. In a paused sandbox the state is D for
// ever. Otherwise it is D only for moments, while the process starts a program.
func (in *Instance) isFrozen(ctx context.Context) (bool, error) {
	for range frozenLooks {
		stat, err := in.readInside(ctx, "/proc/1/stat")
		if err != nil {
			return false, err
		}
		i := bytes.LastIndexByte(stat, ')')
		if i < 0 || len(stat) < i+3 {
			return false, fmt.Errorf("the first process's state reads %.40q", stat)
		}
		if stat[i+2] != 'D' {
			return false, nil
		}
		select {
		case <-time.After(frozenPause):
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
	return true, nil
}

// maxInside bounds what readInside returns, in bytes.
const maxInside = 4 << 10

// readInside lets the sentry read the start of a small file inside.
func (in *Instance) readInside(ctx context.Context, path string) ([]byte, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	args := control.ReadOpts{ContainerID: string(in.rec.ID), Path: path, Size: maxInside,
		FilePayload: urpc.FilePayload{Files: []*os.File{w}}}
	err = in.call(ctx, boot.FsRead, &args, nil) // the answer fits into the pipe, so it never waits
	w.Close()
	if err != nil {
		return nil, err
	}
	_ = r.SetReadDeadline(time.Now().Add(dyingTime)) // a sentry may keep its end open
	b := make([]byte, maxInside)
	n, err := r.Read(b)
	if err != nil && err != io.EOF {
		return nil, err
	}
	return b[:n], nil
}
