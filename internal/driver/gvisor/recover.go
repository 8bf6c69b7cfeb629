package gvisor

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
)

// Recover implements driver.Driver.
func (d *Driver) Recover(ctx context.Context, h driver.Handle) (driver.Instance, error) {
	rec, err := decode(h)
	if err != nil {
		return nil, err
	}
	d.uids.hold(rec.UID)
	in := &Instance{d: d, rec: *rec, group: cgroup.Load(rec.Group)}
	pidfd, err := rec.Open()
	if err == nil {
		err = in.Relink(ctx, d.opts.Keeper, rec.Link, d.opts.Network, driver.LinkSpec{ID: rec.ID, MTU: rec.MTU})
	}
	if err = in.Settle(ctx, err, in.params(pidfd)); err != nil {
		return nil, err
	}
	in.begin(pidfd)
	return in, nil
}

// decode checks a handle; nothing is touched yet.
func decode(h driver.Handle) (*record, error) {
	return hosted.Decode(h, recordVersion, func(r *record) (int, carrel.ID, hosted.Process) { return r.Version, r.ID, r.Process })
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
		errs = append(errs, hosted.KillStray(ctx, pid))
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
