package gvisor

import (
	"errors"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/spawn"
)

// spawnerRest is the least time between the starts of two spawners. The cause that ended one may
// end the next.
const spawnerRest = time.Minute

// spawner is the small process that starts a driver's sentries. When it has ended, another one is
// started. Until then the driver starts sentries itself, more slowly.
type spawner struct {
	mu     sync.Mutex
	now    *spawn.Spawner // nil where there is none
	next   time.Time      // earliest start of the next one
	closed bool
}

// get returns the present spawner. If there is none, it starts one, unless the last start was less
// than spawnerRest ago; then it returns nil.
func (s *spawner) get(d *Driver) *spawn.Spawner {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now != nil || s.closed || time.Now().Before(s.next) {
		return s.now
	}
	s.next = time.Now().Add(spawnerRest)
	cmd := exec.Command(d.program.path)
	cmd.Env, cmd.Dir, cmd.Stdin = []string{sentryEnv}, "/", d.program.null // see openProgram
	now, err := spawn.Start(cmd, d.opts.RootArg())
	if err != nil {
		d.log.Warn("sandboxes are started by the daemon itself", "err", err)
		return nil
	}
	s.now = now
	return now
}

// gone drops a spawner that no longer works.
func (s *spawner) gone(d *Driver, which *spawn.Spawner, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now == which && !s.closed {
		s.now = nil
		d.log.Warn("sandboxes are started by the daemon itself for a while", "err", err)
	}
}

func (s *spawner) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.now == nil {
		return nil
	}
	return s.now.Close()
}

// spawn starts a process. The spawner starts only this build's own program.
func (d *Driver) spawn(k *sentryBuild, r spawn.Request, group *cgroup.Group,
	files []*os.File) (pid int, pidfd *os.File, err error) {
	if !k.own() {
		return d.execSelf(k, r, group, files)
	}
	s := d.spawner.get(d)
	if s == nil {
		return d.execSelf(k, r, group, files)
	}
	pid, pidfd, err = s.Process(r, files)
	if errors.Is(err, spawn.ErrGone) {
		d.spawner.gone(d, s, err)
		return d.execSelf(k, r, group, files)
	}
	return pid, pidfd, err
}
