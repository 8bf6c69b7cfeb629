package ns

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/tap"
)

// Recover implements driver.Driver.
func (d *Driver) Recover(ctx context.Context, h driver.Handle) (driver.Instance, error) {
	rec, err := hosted.Decode(h, recordVersion, func(r *record) (int, carrel.ID, hosted.Process) { return r.Version, r.ID, r.Process })
	if err != nil {
		return nil, err
	}
	in := &Instance{d: d, rec: *rec, group: cgroup.Load(rec.Group), ice: loadFreezer(rec.Ice)}
	pidfd, err := rec.Open()
	if err == nil {
		err = in.Relink(ctx, d.opts.Keeper, rec.Link, d.opts.Network, driver.LinkSpec{ID: rec.ID, MTU: tap.DefaultMTU})
	}
	if err = in.Settle(ctx, err, in.params(pidfd)); err != nil {
		return nil, err
	}
	in.begin(pidfd)
	return in, nil
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
		errs = append(errs, hosted.KillStray(ctx, pid))
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
