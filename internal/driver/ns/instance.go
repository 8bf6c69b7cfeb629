package ns

import (
	"context"
	"errors"
	"os"
	"sync"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// recordVersion is the version of the handle's form.
const recordVersion = 1

// record is the content of the handle: everything that is needed to find a sandbox again.
type record struct {
	hosted.Record
	FirstID uint32 `json:"firstID,omitempty"`
	Ice     string `json:"freezer,omitempty"` // see freezer
	Root    string `json:"root,omitempty"`    // names the template's content
	Whole   string `json:"whole,omitempty"`   // where the template will be; Root is "" then
	Lower   string `json:"lower,omitempty"`   // its unpacked template
}

// Instance is one sandbox.
type Instance struct {
	hosted.Life
	d     *Driver
	rec   record
	group *cgroup.Group
	ice   *freezer

	guestLog *os.File // nil after Recover
	drop     func()   // gives its templates back

	memory hosted.MemoryGuard
	used   diskUse

	iceLock chan struct{} // holds one entry during a freeze, a thaw or a snapshot
}

var _ driver.Instance = (*Instance)(nil)

// newInstance watches a sandbox that was just started.
func (d *Driver) newInstance(l *launch) *Instance {
	in := &Instance{
		d: d, group: l.group, ice: l.ice, guestLog: l.guestLog,
		drop: sync.OnceFunc(func() { d.templates.drop(l.lowerKey); d.templates.drop(l.guestKey) }),
		rec: record{
			Record:  d.opts.NewRecord(recordVersion, l.spec, d.links.Name(l.spec.ID), l.pid, l.group),
			FirstID: l.first, Ice: l.ice.path(), Root: l.root,
			Whole: l.spec.Root.Whole,
		},
	}
	if !d.full {
		in.rec.Lower = l.lower
	}
	if !d.bounded {
		in.rec.DiskMB = 0
	}
	in.begin(l.pidfd)
	return in
}

// begin starts the watch.
func (in *Instance) begin(pidfd *os.File) {
	in.iceLock = make(chan struct{}, 1)
	in.d.track(in)
	in.Begin(in.params(pidfd))
}

func (in *Instance) params(pidfd *os.File) hosted.Params {
	return hosted.Params{
		ID: in.rec.ID, PID: in.rec.PID, Pidfd: pidfd, Log: in.d.log, Guard: in.guardMemory,
		// A frozen process must run again to die.
		Kill: func() { proc.Kill(pidfd); in.ice.thaw() }, Reason: in.reason, Remove: in.remove, Forget: func() { in.d.forget(in) },
	}
}

// Handle implements driver.Instance.
func (in *Instance) Handle() driver.Handle { return hosted.Encode(in.rec) }

// remove removes all traces of a dead sandbox.
func (in *Instance) remove(ctx context.Context) error {
	err := in.d.links.Drop(ctx, in.rec.Link)
	removeFiles(in.rec.Dir)
	err = errors.Join(err, in.group.Destroy(ctx))
	in.ice.remove()
	if in.drop != nil {
		in.drop()
	}
	hosted.CloseAll(in.guestLog)
	return err
}
