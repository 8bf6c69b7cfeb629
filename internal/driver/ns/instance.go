package ns

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// recordVersion is the version of the handle's form.
const recordVersion = 1

// record is what the handle holds: all that finds a sandbox again.
type record struct {
	Version int       `json:"v"`
	ID      carrel.ID `json:"id"`
	hosted.Process
	FirstID  uint32       `json:"firstID,omitempty"`
	Dir      string       `json:"dir"`
	Link     string       `json:"link"` // its name at the keeper
	MemoryMB int          `json:"memoryMB"`
	DiskMB   int          `json:"diskMB"` // 0 where nothing bounds it
	Group    cgroup.Paths `json:"cgroup"`
	Ice      string       `json:"freezer,omitempty"` // see freezer
	Root     string       `json:"root,omitempty"`    // names the template's content
	Lower    string       `json:"lower,omitempty"`   // the unpacked template that it lies on
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

	overMemory atomic.Bool // guardMemory ended it
	used       diskUse

	iceLock chan struct{} // holds one entry during a freeze, a thaw or a snapshot
}

var _ driver.Instance = (*Instance)(nil)

// linkName is the name of a sandbox's link at the keeper.
func linkName(id carrel.ID) string { return "ns/" + string(id) }

// newInstance watches a sandbox that was just started.
func (d *Driver) newInstance(l *launch) *Instance {
	in := &Instance{
		d: d, group: l.group, ice: l.ice, guestLog: l.guestLog,
		drop: sync.OnceFunc(func() { d.templates.drop(l.lowerKey); d.templates.drop(l.guestKey) }),
		rec: record{
			Version: recordVersion, ID: l.spec.ID, Process: hosted.NewProcess(l.pid), FirstID: l.first,
			Dir: l.spec.Dir, Link: linkName(l.spec.ID), MemoryMB: l.spec.Limits.MemoryMB, Group: l.group.Paths(), Ice: l.ice.path(), Root: l.root,
		},
	}
	if !d.full {
		in.rec.Lower = l.lower
	}
	if d.bounded {
		in.rec.DiskMB = l.spec.Limits.DiskMB
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
		// What is frozen must run to die.
		Kill: func() { proc.Kill(pidfd); in.ice.thaw() }, Reason: in.reason, Remove: in.remove, Forget: func() { in.d.forget(in) },
	}
}

// Handle implements driver.Instance.
func (in *Instance) Handle() driver.Handle {
	b, err := json.Marshal(in.rec)
	if err != nil {
		panic("ns: handle: " + err.Error()) // plain fields always encode
	}
	return b
}

// remove removes what is left of a dead sandbox.
func (in *Instance) remove(ctx context.Context) error {
	var errs []error
	if k := in.d.opts.Keeper; k != nil {
		errs = append(errs, k.Delete(ctx, in.rec.Link))
	}
	removeFiles(in.rec.Dir)
	errs = append(errs, in.group.Destroy(ctx))
	in.ice.remove()
	if in.drop != nil {
		in.drop()
	}
	closeAll(in.guestLog)
	return errors.Join(errs...)
}

// now is when something ended.
func now() time.Time { return time.Now().UTC() }
