//go:build linux

package hosted

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// AllNamespaces are the clone flags of a process that shares no namespace with its parent, except
// those that are no wall.
const AllNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

// Start starts a sandbox's first process in its group, as a child of this process. The child
// inherits attr.Files and nothing else. before, unless nil, is called on the thread that starts the
// child; the thread ends afterwards. The caller owns the pidfd. Only the pidfd keeps track of the
// process.
func Start(program string, args []string, attr *os.ProcAttr, group *cgroup.Group, before func() error) (pid int, _ *os.File, err error) {
	proc.CloseOnExec(3) // closes all other files of this program at the exec
	var process *os.Process
	pidfd := -1
	attr.Sys.PidFD = &pidfd
	err = group.Start(attr.Sys, func() error {
		if before != nil {
			if err := before(); err != nil {
				return err
			}
		}
		return proc.Alone(func() (err error) {
			process, err = os.StartProcess(program, args, attr)
			return err
		})
	})
	if err != nil {
		return 0, nil, err
	}
	if pidfd < 0 {
		_ = process.Kill()
		_, _ = process.Wait()
		return 0, nil, errors.New("this kernel has no pidfd (Linux 5.3 or newer is needed)")
	}
	_ = unix.SetNonblock(pidfd, true) // so that the runtime's poller can wait for it
	pid = process.Pid
	return pid, os.NewFile(uintptr(pidfd), "pidfd"), process.Release()
}

// DestroyGroup removes a control group, even when ctx has ended.
func DestroyGroup(ctx context.Context, g *cgroup.Group) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), UndoTime)
	defer cancel()
	_ = g.Destroy(ctx)
}

// CloseAll closes the open files.
func CloseAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}
