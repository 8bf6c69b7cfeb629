package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// recordVersion is the version of the handle's form.
const recordVersion = 1

// record is what the handle holds: all that finds a sandbox again.
type record struct {
	Version  int          `json:"v"`
	ID       carrel.ID    `json:"id"`
	PID      int          `json:"pid"`
	Started  uint64       `json:"started"` // the process's start, in ticks since boot: tells a reused pid
	BootID   string       `json:"boot"`    // which boot those ticks count from
	UID      int          `json:"uid"`
	Sock     string       `json:"sock"`
	Dir      string       `json:"dir"`
	Link     string       `json:"link"` // its name at the keeper
	MTU      int          `json:"mtu"`
	MemoryMB int          `json:"memoryMB"`
	DiskMB   int          `json:"diskMB"`
	Group    cgroup.Paths `json:"cgroup"`

	// What its snapshots are to say. Empty in the handles of older builds.
	Build  string        `json:"build,omitempty"` // see Driver.buildName, at its start
	Files  string        `json:"files,omitempty"` // filesBuild at its start
	Root   string        `json:"root,omitempty"`  // see imageID
	Guest  string        `json:"guest,omitempty"`
	Inside carrel.Limits `json:"inside"`           // see launch.inside
	Images []string      `json:"images,omitempty"` // the paths of the two
	Loads  string        `json:"loads,omitempty"`  // what it was restored with, see Loaded
}

// Instance is one sandbox.
type Instance struct {
	d     *Driver
	rec   record
	group *cgroup.Group

	pidfd    *os.File // readable when the sentry has ended
	guestLog *os.File // nil after Recover

	ended chan struct{} // closed when the sentry is gone and exit is set
	exit  driver.Exit   // valid after ended
	left  chan struct{} // closed when watch has returned, perhaps before the end

	overMemory atomic.Bool // guardMemory ended it

	taking  atomic.Bool   // a snapshot is being taken
	iceLock chan struct{} // holds one entry while ice is in use
	ice     iceState

	once    sync.Once     // the one Destroy that works
	gone    chan struct{} // closed when that one is through
	goneErr error         // its result, valid after gone

	mu     sync.Mutex
	killed bool        // Destroy asked for the end
	over   bool        // the link, present or future, is to be closed
	link   driver.Link // nil until it is connected
}

var _ driver.Instance = (*Instance)(nil)

// linkName is the name of a sandbox's link at the keeper.
func linkName(id carrel.ID) string { return "gvisor/" + string(id) }

// newInstance watches a sentry that was just started.
func (d *Driver) newInstance(l *launch) *Instance {
	started, _ := proc.StartTime(l.pid)
	in := &Instance{
		d: d, group: l.group, pidfd: l.pidfd, guestLog: l.guestLog, ice: iceThawed,
		rec: record{
			Version: recordVersion, ID: l.spec.ID, PID: l.pid, Started: started, BootID: proc.BootID(),
			UID: l.uid, Sock: l.sock, Dir: l.spec.Dir, Link: linkName(l.spec.ID),
			MemoryMB: l.spec.Limits.MemoryMB, DiskMB: l.inside().DiskMB, Group: l.group.Paths(),
			Build: l.made.build, Files: filesBuild, Root: l.made.root, Guest: l.made.guest, Inside: l.inside(),
			Images: []string{l.spec.Root.Image, l.spec.Guest},
		},
	}
	if l.saved != nil {
		in.rec.Loads = loadsFiles
		if l.saved.memory {
			in.rec.Loads = loadsMemory
		}
	}
	in.begin()
	return in
}

// begin makes the channels and starts the watch.
func (in *Instance) begin() {
	in.ended, in.left, in.gone = make(chan struct{}), make(chan struct{}), make(chan struct{})
	in.iceLock = make(chan struct{}, 1)
	in.d.track(in)
	go in.watch()
}

// Handle implements driver.Instance.
func (in *Instance) Handle() driver.Handle {
	b, err := json.Marshal(in.rec)
	if err != nil {
		panic("gvisor: handle: " + err.Error()) // plain fields always encode
	}
	return b
}

// Dial implements driver.Instance.
func (in *Instance) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	select {
	case <-in.ended:
		return nil, &carrel.Error{Op: "dial sandbox", Kind: carrel.Unavailable, ID: in.rec.ID, Err: errors.New(in.exit.Message)}
	default:
	}
	in.mu.Lock()
	link := in.link
	in.mu.Unlock()
	return link.Dial(ctx, port)
}

// setLink stores the connected link; when the sandbox ended meanwhile it closes it.
func (in *Instance) setLink(l driver.Link) {
	in.mu.Lock()
	in.link = l
	over := in.over
	in.mu.Unlock()
	if over {
		_ = l.Close()
	}
}

// closeLink ends all connections, so that nobody waits for a dead sandbox.
func (in *Instance) closeLink() error {
	in.mu.Lock()
	in.over = true
	link := in.link
	in.mu.Unlock()
	if link == nil {
		return nil
	}
	return link.Close()
}

// Wait implements driver.Instance.
func (in *Instance) Wait(ctx context.Context) (driver.Exit, error) {
	select {
	case <-in.ended:
		return in.exit, nil
	case <-in.left:
	case <-ctx.Done():
		return driver.Exit{}, context.Cause(ctx)
	}
	select {
	case <-in.ended: // both were ready
		return in.exit, nil
	default:
		return driver.Exit{}, &carrel.Error{Op: "wait for sandbox", Kind: carrel.Unavailable, ID: in.rec.ID, Err: errClosed}
	}
}

// errClosed is what an instance answers after its driver was closed.
var errClosed = errors.New("the driver is closed")

// Destroy implements driver.Instance. The work is done once and to its end; a
// caller whose ctx ends earlier stops waiting for it.
func (in *Instance) Destroy(ctx context.Context) error {
	in.once.Do(func() {
		in.mu.Lock()
		in.killed = true
		in.mu.Unlock()
		go func() {
			defer close(in.gone)
			in.goneErr = in.destroy()
		}()
	})
	select {
	case <-in.gone:
		return in.goneErr
	case <-ctx.Done():
		return &carrel.Error{Op: "destroy sandbox", Kind: carrel.TimedOut, ID: in.rec.ID, Err: context.Cause(ctx)}
	}
}

// destroy kills the sentry, waits for its death, and removes every trace.
func (in *Instance) destroy() error {
	ctx, cancel := context.WithTimeout(context.Background(), undoTime)
	defer cancel()
	in.kill()
	var errs []error
	select {
	case <-in.ended:
	case <-ctx.Done():
		errs = append(errs, fmt.Errorf("sentry %d does not die", in.rec.PID))
	}
	errs = append(errs, in.closeLink())
	if k := in.d.opts.Keeper; k != nil {
		errs = append(errs, k.Delete(ctx, in.rec.Link))
	}
	removeFiles(in.rec.Sock, in.rec.Dir)
	errs = append(errs, in.group.Destroy(ctx))
	closeAll(in.guestLog, in.pidfd)
	in.d.forget(in)
	in.d.uids.drop(in.rec.UID)
	if err := errors.Join(errs...); err != nil {
		return &carrel.Error{Op: "destroy sandbox", Kind: carrel.Internal, ID: in.rec.ID, Err: err}
	}
	return nil
}

// abandon undoes a creation that failed.
func (in *Instance) abandon() {
	if err := in.Destroy(context.Background()); err != nil {
		in.d.log.Error("undo a failed creation", "sandbox", in.rec.ID, "err", err)
	}
}

// kill ends the sentry: as the first process of its pid namespace it takes all
// others with it. Through the pidfd it can't hit a stranger with a reused pid.
func (in *Instance) kill() {
	proc.Kill(in.pidfd)
}

// release lets go of the sandbox without ending it.
func (in *Instance) release() {
	closeAll(in.pidfd, in.guestLog)
	<-in.left
	_ = in.closeLink()
}

// watch waits for the sentry's end and records why; after release it just returns.
func (in *Instance) watch() {
	defer close(in.left)
	stop := in.guardMemory()
	over := proc.Wait(in.pidfd)
	stop()
	if !over {
		return
	}
	status := proc.Reap(in.pidfd, in.rec.PID)
	in.mu.Lock()
	killed := in.killed
	in.mu.Unlock()
	in.exit = in.reason(killed, status)
	close(in.ended)
	_ = in.closeLink()
	if !killed {
		in.d.log.Warn("sandbox ended", "sandbox", in.rec.ID, "reason", in.exit.Reason, "message", in.exit.Message)
	}
}

// preferForOOM makes the sentry, and none of the processes it starts later, the
// first to be killed for memory: without it the sandbox is over at once, instead
// of losing one process after the other while the memory stays in use.
func (in *Instance) preferForOOM() {
	_ = os.WriteFile("/proc/"+strconv.Itoa(in.rec.PID)+"/oom_score_adj", []byte("1000"), 0)
}

// now is when something ended.
func now() time.Time { return time.Now().UTC() }
