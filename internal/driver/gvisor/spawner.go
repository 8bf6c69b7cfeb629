package gvisor

import (
	"errors"
	"os"
	"os/exec"

	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/spawn"
)

// startSpawner starts the small process that starts this driver's sentries. Without it, nil, the driver does it itself.
func (d *Driver) startSpawner() *spawn.Spawner {
	cmd := exec.Command(d.program.path)
	cmd.Env, cmd.Dir, cmd.Stdin = []string{sentryEnv}, "/", d.program.null // see openProgram
	s, err := spawn.Start(cmd, "--root="+d.opts.Root)
	if err != nil {
		d.log.Warn("sandboxes are started by the daemon itself", "err", err)
		return nil
	}
	return s
}

// spawn starts a process.
func (d *Driver) spawn(r spawn.Request, group *cgroup.Group, files []*os.File) (pid int, pidfd *os.File, err error) {
	err = spawn.ErrGone
	if d.spawner != nil {
		pid, pidfd, err = d.spawner.Process(r, files)
	}
	if errors.Is(err, spawn.ErrGone) {
		return d.execSelf(r, group, files)
	}
	return pid, pidfd, err
}
