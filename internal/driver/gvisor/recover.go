package gvisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/proc"
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
	d.uids.hold(rec.UID)
	return &Instance{d: d, rec: rec, group: cgroup.Load(rec.Group)}, nil
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
	link, err := in.d.opts.Network.Attach(ctx, driver.LinkSpec{ID: in.rec.ID, MTU: in.rec.MTU}, f)
	if err != nil {
		return fmt.Errorf("attach its link: %w", err)
	}
	in.setLink(link)
	return nil
}

// findProcess opens the sentry of a record if it still is that process: the pid
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
	if k := in.d.opts.Keeper; k != nil {
		_ = k.Delete(ctx, in.rec.Link)
	}
	removeFiles(in.rec.Sock, in.rec.Dir)
	in.d.uids.drop(in.rec.UID)
	if err := in.group.Destroy(ctx); err != nil {
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
// a daemon that died between starting a sentry and storing its handle. Call it
// after the recoveries and before the first Create.
func (d *Driver) Sweep(ctx context.Context, known []carrel.ID) error {
	keep := map[string]bool{}
	for _, id := range known {
		keep[string(id)] = true
	}
	var errs []error
	strays, kept := d.sentries(keep)
	for _, pid := range strays {
		errs = append(errs, killAndWait(ctx, pid))
	}
	for _, name := range d.groups.List() {
		group := d.groups.Lookup(name)
		// The name of one that was made ahead says nothing; who is in it does.
		inUse := strings.HasPrefix(name, blankGroup) && slices.ContainsFunc(group.Processes(), func(pid int) bool { return kept[pid] })
		if !keep[name] && !inUse && !d.blanks.owns(0, name) {
			errs = append(errs, group.Destroy(ctx))
		}
	}
	socks, _ := filepath.Glob(filepath.Join(d.opts.Root, "*.sock"))
	for _, s := range socks {
		if id := strings.TrimSuffix(filepath.Base(s), ".sock"); !keep[id] {
			errs = append(errs, os.Remove(s))
			if k := d.opts.Keeper; k != nil {
				errs = append(errs, k.Delete(ctx, linkName(carrel.ID(id))))
			}
		}
	}
	if d.works.Load() {
		d.blanks.begin() // not earlier: they would look like something left behind
	}
	if err := errors.Join(errs...); err != nil {
		return &carrel.Error{Op: "sweep sandboxes", Kind: carrel.Internal, Err: err}
	}
	return nil
}

// strayNames are the parts that can outlive a daemon.
var strayNames = []string{sentryName, extractName, tarName}

// sentries finds the sentries of this driver's root: those that are not to be kept, with other parts that a daemon died over, and those
// that are. Its blanks are neither.
func (d *Driver) sentries(keep map[string]bool) (strays []int, kept map[int]bool) {
	kept = map[int]bool{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		args := bytes.Split(bytes.TrimSuffix(b, []byte{0}), []byte{0})
		ours := len(args) > 2 && slices.Contains(strayNames, string(args[0])) &&
			slices.ContainsFunc(args, func(a []byte) bool { return string(a) == "--root="+d.opts.Root })
		switch {
		case !ours:
		case keep[string(args[len(args)-1])]:
			kept[pid] = true
		case !d.blanks.owns(pid, ""):
			strays = append(strays, pid)
		}
	}
	return strays, kept
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
