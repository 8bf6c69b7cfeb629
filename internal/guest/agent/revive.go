package agent

import (
	"time"

	"github.com/carrel-dev/carrel/internal/guest/process"
)

const (
	// reviveFirst is the pause before a process is started again. It doubles with each end in a row,
	// up to reviveMost: a process that ends at once must not keep the sandbox busy.
	reviveFirst = 100 * time.Millisecond
	reviveMost  = 10 * time.Second
	// reviveCalm is how long a process must have run for the next pause to be the first one again.
	reviveCalm = 30 * time.Second
	// reviveRefusal is the highest status by which a process says that it is not to be started again.
	reviveRefusal = 1
)

// reviver starts a process again whenever it ends. The agent does that itself, since a supervisor
// beside the process dies with it: one user's programs may all kill each other.
type reviver struct {
	a     *Agent
	user  User
	req   *process.StartRequest
	pause time.Duration // before the next start
	began time.Time
}

// reviver returns the reviver of a process that is to be started, nil for most.
func (a *Agent) reviver(u User, req *process.StartRequest, limited bool) *reviver {
	if a.cfg.Revive == nil || limited || req.Pty != nil ||
		!a.cfg.Revive(req.GetTag(), req.GetProcess().GetCmd(), req.GetProcess().GetArgs()) {
		return nil
	}
	return &reviver{a: a, user: u, req: req, pause: reviveFirst, began: time.Now()}
}

// ended starts the process again unless it does not want that.
func (v *reviver) ended(exit ExitStatus) {
	if v.a.ctx.Err() != nil || exit.Signal == 0 && exit.Code <= reviveRefusal {
		return
	}
	v.a.spawn(v.again)
}

// again waits, and starts the process. It tries until that succeeds or the agent closes.
func (v *reviver) again() {
	if time.Since(v.began) >= reviveCalm {
		v.pause = reviveFirst
	}
	for {
		select {
		case <-time.After(v.pause):
		case <-v.a.ctx.Done():
			return
		}
		v.pause = min(2*v.pause, reviveMost)
		v.began = time.Now()
		cmd, cerr := v.a.command(v.user, v.req) // the sandbox's variables may be others now
		if cerr != nil {
			v.a.log.Warn("start a process again", "cmd", v.req.GetProcess().GetCmd(), "err", cerr)
			continue
		}
		proc, err := v.a.sys.Start(cmd)
		if err != nil {
			v.a.log.Warn("start a process again", "cmd", cmd.Path, "err", err)
			continue
		}
		r := newRunning(proc, v.req)
		r.revive = v
		if l, cerr := v.a.run(r, 0, false); cerr == nil { // an error means that the agent closes
			l.leave()
		}
		return
	}
}
