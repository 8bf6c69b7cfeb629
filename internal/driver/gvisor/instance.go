package gvisor

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strconv"
	"sync/atomic"

	"github.com/carrel-dev/carrel"
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
	UID  int    `json:"uid"`
	Sock string `json:"sock"`
	MTU  int    `json:"mtu"`

	// The names that its snapshots get. Empty in the handles of older builds.
	Build string `json:"build,omitempty"` // see Driver.buildName, at its start
	// Control is the sentry's controlVersion; 0 is 1.
	Control int           `json:"control,omitempty"`
	Files   string        `json:"files,omitempty"` // filesBuild at its start
	Root    string        `json:"root,omitempty"`  // see imageID
	Guest   string        `json:"guest,omitempty"`
	Inside  carrel.Limits `json:"inside"`           // see launch.inside
	Images  []string      `json:"images,omitempty"` // the paths of the two
	Loads   string        `json:"loads,omitempty"`  // the content it was restored with, see Loaded
}

// Instance is one sandbox.
type Instance struct {
	hosted.Life
	d     *Driver
	rec   record
	group *cgroup.Group

	guestLog *os.File // nil after Recover

	memory hosted.MemoryGuard

	taking  atomic.Bool   // a snapshot is being taken
	iceLock chan struct{} // holds one entry while ice is in use
	ice     iceState
}

var _ driver.Instance = (*Instance)(nil)

// newInstance watches a sentry that was just started.
func (d *Driver) newInstance(l *launch) *Instance {
	in := &Instance{
		d: d, group: l.group, guestLog: l.guestLog, ice: iceThawed,
		rec: record{
			Record: d.opts.NewRecord(recordVersion, l.spec, d.links.Name(l.spec.ID), l.pid, l.group),
			UID:    l.uid, Sock: l.sock,
			Build: l.made.kernel.name, Control: controlVersion, Files: filesBuild, Root: l.made.root,
			Guest: l.made.guest, Inside: l.inside(),
			Images: []string{cmp.Or(l.spec.Root.Whole, l.spec.Root.Image), l.spec.Guest},
		},
	}
	in.rec.DiskMB = l.inside().DiskMB
	if l.saved != nil {
		in.rec.Loads = loadsFiles
		if l.saved.memory {
			in.rec.Loads = loadsMemory
		}
	}
	in.begin(l.pidfd)
	d.keepLater()
	return in
}

// begin starts the watch.
func (in *Instance) begin(pidfd *os.File) {
	in.iceLock = make(chan struct{}, 1)
	in.d.live.Enter(in)
	in.Begin(in.params(pidfd))
}

func (in *Instance) params(pidfd *os.File) hosted.Params {
	return hosted.Params{
		ID: in.rec.ID, PID: in.rec.PID, Pidfd: pidfd, Log: in.d.log, Guard: in.guardMemory,
		// The sentry is the first process of its pid namespace, so killing it kills all others. A
		// pidfd can't hit another process that got the same pid.
		Kill: func() { proc.Kill(pidfd) }, Reason: in.reason, Remove: in.remove, Forget: func() { in.d.live.Strike(in) },
	}
}

// Handle implements driver.Instance.
func (in *Instance) Handle() driver.Handle { return hosted.Encode(in.rec) }

// remove removes all traces of a dead sandbox.
func (in *Instance) remove(ctx context.Context) error {
	err := in.d.links.Drop(ctx, in.rec.Link)
	removeFiles(in.rec.Sock, in.rec.Dir)
	err = errors.Join(err, in.group.Destroy(ctx))
	hosted.CloseAll(in.guestLog)
	in.d.uids.drop(in.rec.UID)
	return err
}

// preferForOOM makes the kernel kill the sentry first when memory runs out, and none of the
// processes that the sentry starts later. Without the sentry the sandbox ends at once. Otherwise it
// would lose one process after the other while the memory stays in use.
func (in *Instance) preferForOOM() {
	_ = os.WriteFile("/proc/"+strconv.Itoa(in.rec.PID)+"/oom_score_adj", []byte("1000"), 0)
}
