package gvisor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	if err := d.opts.CheckOurs(&rec.Record); err != nil {
		return nil, err
	}
	rec.follow(d.opts.Follow(&rec.Record))
	if rec.Control > controlVersion {
		return nil, &carrel.Error{Op: hosted.OpRecover, Kind: carrel.Unsupported, ID: rec.ID,
			Hint: "go back to the newer build",
			Err: fmt.Errorf(
				"its kernel speaks version %d of the control protocol, this build speaks version %d",
				rec.Control, controlVersion)}
	}
	d.uids.hold(rec.UID)
	in := &Instance{d: d, rec: *rec, group: cgroup.Load(rec.Group)}
	reopen := func(ctx context.Context) error { return d.links.Reopen(ctx, &in.Life, &in.rec.Record, rec.MTU) }
	pidfd, err := in.Adopt(ctx, &in.rec.Record, reopen, in.params)
	if err != nil {
		return nil, err
	}
	in.begin(pidfd)
	return in, nil
}

// decode checks a handle; nothing is touched yet.
func decode(h driver.Handle) (*record, error) { return hosted.Decode[record](h, recordVersion) }

// follow replaces the paths of a record.
func (r *record) follow(now func(path string) string) {
	r.Sock, r.Images = now(r.Sock), slices.Clone(r.Images)
	for i, path := range r.Images {
		r.Images[i] = now(path)
	}
	r.Dir = now(r.Dir)
}

// Sweep implements driver.Sweeper. Only after it are sentries started ahead: Sweep would take them
// for leftovers.
func (d *Driver) Sweep(ctx context.Context, known []carrel.ID) error {
	keep := hosted.Known(known)
	err := d.sweep(ctx, func(id string) bool { return keep[id] })
	if d.works.Load() {
		d.blanks.begin()
	}
	return err
}

// DestroyStray implements driver.Sweeper.
func (d *Driver) DestroyStray(ctx context.Context, id carrel.ID) error {
	return d.sweep(ctx, func(other string) bool { return other != string(id) })
}

// ClearGroups implements driver.GroupClearer.
func (d *Driver) ClearGroups(ctx context.Context, id carrel.ID) error {
	return d.groups.Lookup(string(id)).RemoveEmpty(ctx)
}

// sweep ends every sandbox of this driver that is not to be kept, and removes what is left of it.
func (d *Driver) sweep(ctx context.Context, keep func(id string) bool) error {
	var errs []error
	strays, kept := d.sentries(keep)
	// A group that was made ahead has a neutral name: its processes say whose it is.
	doomed := map[string]bool{}
	for _, name := range d.groups.List() {
		doomed[name] = slices.ContainsFunc(d.groups.Lookup(name).Processes(), func(pid int) bool { return slices.Contains(strays, pid) })
	}
	for _, pid := range strays {
		errs = append(errs, hosted.KillStray(ctx, pid))
	}
	for _, name := range d.groups.List() {
		group := d.groups.Lookup(name)
		inUse := strings.HasPrefix(name, blankGroup) && slices.ContainsFunc(group.Processes(), func(pid int) bool { return kept[pid] })
		if doomed[name] || !keep(name) && !inUse && !d.blanks.owns(0, name) {
			errs = append(errs, group.Destroy(ctx))
		}
	}
	socks, _ := filepath.Glob(filepath.Join(d.opts.Root, "*.sock"))
	for _, s := range socks {
		if id := strings.TrimSuffix(filepath.Base(s), ".sock"); !keep(id) {
			errs = append(errs, os.Remove(s), d.links.Drop(ctx, d.links.Name(carrel.ID(id))))
		}
	}
	return hosted.SweepError(errs)
}

// strayNames are the parts that can outlive a daemon.
var strayNames = []string{sentryName, extractName, tarName}

// sentries finds the sentries of this driver's root. strays are those that are not to be kept, and
// other parts whose daemon died. kept are the others. The driver's own blanks are in neither.
func (d *Driver) sentries(keep func(id string) bool) (strays []int, kept map[int]bool) {
	kept = map[int]bool{}
	hosted.Strays(func(pid int, args []string) {
		ours := len(args) > 2 && slices.Contains(strayNames, args[0]) && d.opts.IsOurs(args)
		switch {
		case !ours:
		case keep(args[len(args)-1]):
			kept[pid] = true
		case !d.blanks.owns(pid, ""):
			strays = append(strays, pid)
		}
	})
	return strays, kept
}
