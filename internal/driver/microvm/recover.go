//go:build linux

package microvm

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
)

// Recover implements driver.Driver.
func (d *Driver) Recover(ctx context.Context, h driver.Handle) (driver.Instance, error) {
	rec, err := hosted.Decode[record](h, recordVersion)
	if err != nil {
		return nil, err
	}
	if err := d.opts.CheckOurs(&rec.Record); err != nil {
		return nil, err
	}
	kind, err := engineOf(rec.Engine)
	if err != nil {
		return nil, &carrel.Error{Op: hosted.OpRecover, Kind: carrel.Unsupported, ID: rec.ID, Err: err}
	}
	rec.Dir = d.opts.Follow(&rec.Record)(rec.Dir)
	in := &Instance{d: d, engine: kind, rec: *rec, group: cgroup.Load(rec.Group), ice: make(chan struct{}, 1), adopted: true}
	reopen := func(ctx context.Context) error { return d.links.Reopen(ctx, &in.Life, &in.rec.Record, rec.MTU) }
	pidfd, err := in.Adopt(ctx, &in.rec.Record, reopen, in.params)
	if err != nil {
		return nil, err
	}
	in.clocked.Do(func() {})
	in.begin(pidfd)
	in.wake(ctx)
	return in, nil
}

// wakeTime bounds the question whether a machine runs.
const wakeTime = 5 * time.Second

// wake lets a machine go on that an earlier daemon had stopped for a snapshot when it died. A frozen
// VMM can't be asked: the thaw does it.
func (in *Instance) wake(ctx context.Context) {
	if in.isFrozen() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, wakeTime)
	defer cancel()
	if err := in.engine.wake(ctx, in); err != nil {
		in.d.log.Warn("a machine does not say whether it runs", "sandbox", in.rec.ID, "err", err)
	}
}

// Sweep implements driver.Sweeper.
func (d *Driver) Sweep(ctx context.Context, known []carrel.ID) error {
	keep := hosted.Known(known)
	return d.sweep(ctx, func(id string) bool { return keep[id] })
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
	for pid, id := range d.strays() {
		if !keep(id) {
			errs = append(errs, hosted.KillStray(ctx, pid), d.links.Drop(ctx, d.links.Name(carrel.ID(id))))
		}
	}
	for _, name := range d.groups.List() {
		if !keep(name) {
			errs = append(errs, d.groups.Lookup(name).Destroy(ctx))
		}
	}
	return hosted.SweepError(errs)
}

// strays finds the VMMs of this driver's sandboxes, by their arguments.
func (d *Driver) strays() map[int]string {
	out := map[int]string{}
	hosted.Strays(func(pid int, args []string) {
		mark := d.mark
		switch {
		case args[0] == firecrackerPath:
			mark = instanceName(d.mark)
		case args[0] != stageName && !strings.HasPrefix(filepath.Base(args[0]), "qemu-system-"):
			return
		}
		for _, a := range args[1:] {
			if id, ours := strings.CutPrefix(a, mark); ours {
				out[pid] = id
				return
			}
		}
	})
	return out
}
