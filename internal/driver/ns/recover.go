package ns

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/proc"
	"github.com/carrel-dev/carrel/internal/linux/tap"
)

const opRecover = "recover sandbox"

// Recover implements driver.Driver.
func (d *Driver) Recover(ctx context.Context, h driver.Handle) (driver.Instance, error) {
	in, err := d.decode(h)
	if err != nil {
		return nil, err
	}
	rec := in.rec
	pidfd, err := findProcess(rec)
	if err == nil {
		in.pidfd = pidfd
		err = in.relink(ctx)
	}
	switch {
	case err == nil:
		in.begin()
		return in, nil
	case carrel.KindOf(err) != carrel.NotFound:
		// It lives, only the way to it is blocked now: no reason to end it.
		closeAll(in.pidfd)
		return nil, &carrel.Error{Op: opRecover, Kind: carrel.Unavailable, ID: rec.ID, Err: err}
	}
	in.discard(ctx)
	return nil, &carrel.Error{Op: opRecover, Kind: carrel.NotFound, ID: rec.ID, Err: err}
}

// decode checks a handle; nothing is touched yet.
func (d *Driver) decode(h driver.Handle) (*Instance, error) {
	var rec record
	if err := json.Unmarshal(h, &rec); err != nil {
		return nil, &carrel.Error{Op: opRecover, Kind: carrel.Invalid, Field: "handle", Err: err}
	}
	if rec.Version != recordVersion {
		return nil, &carrel.Error{Op: opRecover, Kind: carrel.Unsupported, ID: rec.ID,
			Err: fmt.Errorf("its handle has version %d, this build knows %d", rec.Version, recordVersion)}
	}
	if _, err := carrel.ParseID(string(rec.ID)); err != nil || rec.PID <= 1 {
		return nil, &carrel.Error{Op: opRecover, Kind: carrel.Invalid, Field: "handle", Err: errors.New("names no sandbox")}
	}
	return &Instance{d: d, rec: rec, group: cgroup.Load(rec.Group), ice: loadFreezer(rec.Ice)}, nil
}

// lost is the error of a sandbox that can't be adopted, now or ever.
func lost(format string, args ...any) error {
	return &carrel.Error{Kind: carrel.NotFound, Err: fmt.Errorf(format, args...)}
}

// relink takes the link back from the keeper and connects it.
func (in *Instance) relink(ctx context.Context) error {
	if in.d.opts.Keeper == nil {
		return lost("no keeper held its link")
	}
	f, err := in.d.opts.Keeper.Get(ctx, in.rec.Link)
	if err != nil {
		return fmt.Errorf("its link: %w", err)
	}
	link, err := in.d.opts.Network.Attach(ctx, driver.LinkSpec{ID: in.rec.ID, MTU: tap.DefaultMTU}, f)
	if err != nil {
		return fmt.Errorf("attach its link: %w", err)
	}
	in.setLink(link)
	return nil
}

// findProcess opens the first process of a record if it still is that process: the pid
// is opened first and compared after, so that it can't change hands in between.
func findProcess(rec record) (*os.File, error) {
	if rec.BootID != proc.BootID() {
		return nil, lost("the host was restarted since")
	}
	fd, err := unix.PidfdOpen(rec.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, lost("its process %d: %w", rec.PID, err)
	}
	started, err := proc.StartTime(rec.PID)
	if err != nil || started != rec.Started || proc.Ended(fd, 0) {
		unix.Close(fd)
		return nil, lost("its process %d has ended", rec.PID)
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// discard removes what is left of a sandbox that can't be adopted.
func (in *Instance) discard(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if in.pidfd != nil {
		in.kill()
		waitDead(ctx, in.pidfd)
		proc.Reap(in.pidfd, in.rec.PID)
		in.pidfd.Close()
	}
	_ = in.closeLink()
	if err := in.remove(ctx); err != nil {
		in.d.log.Warn("leftover of a lost sandbox", "sandbox", in.rec.ID, "err", err)
	}
}

// waitDead waits for a process's end as long as ctx allows.
func waitDead(ctx context.Context, pidfd *os.File) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		proc.Wait(pidfd)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		pidfd.Close() // ends the wait
		<-done
	}
}

// Sweep removes what earlier processes left of sandboxes that are not in known:
// a daemon that died between starting one and storing its handle. Call it
// after the recoveries and before the first Create.
func (d *Driver) Sweep(ctx context.Context, known []carrel.ID) error {
	keep := map[string]bool{}
	for _, id := range known {
		keep[string(id)] = true
	}
	var errs []error
	for pid, id := range d.strays() {
		if keep[id] {
			continue
		}
		errs = append(errs, killAndWait(ctx, pid))
		if k := d.opts.Keeper; k != nil {
			errs = append(errs, k.Delete(ctx, linkName(carrel.ID(id))))
		}
	}
	for _, name := range d.groups.List() {
		if !keep[name] {
			errs = append(errs, d.groups.Lookup(name).Destroy(ctx))
		}
	}
	d.ice.sweep(keep)
	d.sweepUnpacked()
	if err := errors.Join(errs...); err != nil {
		return &carrel.Error{Op: "sweep sandboxes", Kind: carrel.Internal, Err: err}
	}
	return nil
}

// strays are the first processes of this driver's sandboxes, by their arguments. Code inside may write such arguments,
// too: it would have its own process ended.
func (d *Driver) strays() map[int]string {
	out := map[int]string{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		b, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		args := strings.Split(string(bytes.TrimSuffix(b, []byte{0})), "\x00")
		if args[0] != stageName && args[0] != driver.GuestPath {
			continue
		}
		if i := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, d.mark) }); i >= 0 {
			out[pid] = strings.TrimPrefix(args[i], d.mark)
		}
	}
	return out
}

// killAndWait ends one process and waits for its end.
func killAndWait(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil // gone
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
		return fmt.Errorf("kill leftover %d: %w", pid, err)
	}
	waitDead(ctx, f)
	return ctx.Err()
}
