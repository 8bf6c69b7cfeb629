package ns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/ext4"
	"github.com/carrel-dev/carrel/internal/linux/proc"
	"github.com/carrel-dev/carrel/internal/linux/seccomp"
	"github.com/carrel-dev/carrel/internal/linux/tap"
)

// scratchDir is a directory in Spec.Dir in which the stage of an ordinary user mounts.
const scratchDir = "root"

// fill writes into an upper layer. first is the host id of root inside; 0 is the caller.
type fill func(upper string, first uint32) error

// launch holds everything that one sandbox is started with.
type launch struct {
	spec  driver.Spec
	root  string // names its template's content
	fill  fill   // writes its layer's initial content; nil for a fresh one
	first uint32 // first of its host ids; 0 if only one id is mapped
	group *cgroup.Group
	ice   *freezer

	lower, lowerKey string // the template, made ready
	guest, guestKey string
	disk            *os.File // for its writes: a filesystem's file, or a directory
	mounts          *os.File // its mount namespace; nil if the stage makes all mounts
	dir             string   // the scratch directory

	guestLog *os.File // the guest's standard error
	pid      int
	pidfd    *os.File
	link     *os.File // the host's end
}

// makeLayer makes the empty layer for the sandbox's writes.
func (d *Driver) makeLayer(l *launch) (err error) {
	if d.bounded {
		if l.disk, err = os.OpenFile(filepath.Join(l.spec.Dir, diskFile), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return err
		}
		if err := ext4.Make(l.disk, int64(l.spec.Limits.DiskMB)<<20); err != nil {
			return err
		}
	} else {
		dir := filepath.Join(l.spec.Dir, diskDir)
		for _, name := range []string{"", upperName, workName} {
			if err := makeOpen(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
		if l.disk, err = os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0); err != nil {
			return err
		}
	}
	if d.full {
		l.mounts, l.dir, err = d.prepare(l)
		return err
	}
	l.dir = filepath.Join(l.spec.Dir, scratchDir)
	if err := makeOpen(l.dir); err != nil {
		return err
	}
	if l.fill != nil {
		return l.fill(filepath.Join(l.spec.Dir, diskDir, upperName), 0)
	}
	return nil
}

// makeOpen makes a directory that the sandbox's users may enter, with any umask of this process.
// The root inside is such a directory.
func makeOpen(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return os.Chmod(dir, 0o755)
}

// order returns the instructions for this sandbox's stage.
func (d *Driver) order(l *launch) order {
	o := order{
		Socket: socketFD, Hostname: string(l.spec.ID),
		Args: guestArgs(d.mark + string(l.spec.ID)), Env: guestEnv,
		Dir: l.dir, NoSetuid: !d.full,
		Device: d.opts.Device, Pids: l.spec.Limits.Pids, ShmBytes: int64(l.spec.Limits.MemoryMB) << 20 / shmShare,
		Groups:  d.full,
		Seccomp: filter(),
	}
	if !d.full {
		o.Binds = map[string]string{lowerName: l.lower, guestName: l.guest, diskName: filepath.Join(l.spec.Dir, diskDir)}
	}
	return o
}

// filter lists the system calls that no program inside may make.
func filter() seccomp.Filter {
	return seccomp.Filter{
		Deny: seccomp.Dangerous(), Namespaces: true, TTY: true,
		Sockets: []int{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK},
	}
}

// start starts the stage and receives the link from it.
func (d *Driver) start(ctx context.Context, l *launch) (err error) {
	if l.guestLog, err = hosted.NewGuestLog(); err != nil {
		return err
	}
	told, err := d.orderFile(l)
	if err != nil {
		return err
	}
	defer told.Close()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "stage"), os.NewFile(uintptr(fds[1]), "stage")
	defer ours.Close()
	err = d.exec(l, told, theirs)
	theirs.Close()
	if err != nil {
		return err
	}
	// If the stage hangs, the end of the context kills it, which also ends the wait.
	stop := context.AfterFunc(ctx, func() { proc.Kill(l.pidfd) })
	defer stop()
	l.link, err = tap.Receive(fds[0])
	if err == nil {
		// The last step before the guest runs can fail, too. Then the socket carries the error.
		// Otherwise it just closes.
		err = lastWord(fds[0])
	}
	if err == nil {
		return nil
	}
	proc.Kill(l.pidfd)
	proc.Wait(l.pidfd)
	proc.Reap(l.pidfd, l.pid)
	oom := l.group.Events().OOMKills > 0
	l.pidfd.Close()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if text := hosted.GuestWords(l.guestLog); text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	if oom {
		return hosted.OutOfMemory(l.spec.Limits.MemoryMB, err)
	}
	return fmt.Errorf("build the sandbox: %w", err)
}

// lastWord reads the stage's message after it gave the link away. There is none when the stage
// became the guest.
func lastWord(socket int) error {
	b := make([]byte, 4096)
	for {
		n, err := unix.Read(socket, b)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return os.NewSyscallError("read", err)
		case n > 0:
			return errors.New(string(b[:n]))
		}
		return nil
	}
}

// orderFile returns the order as an anonymous file.
func (d *Driver) orderFile(l *launch) (*os.File, error) {
	return hosted.OrderFile(d.order(l))
}

// exec starts the stage in its namespaces and its group. If we made its mounts, it starts in those,
// too.
func (d *Driver) exec(l *launch, told, socket *os.File) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	attr := &os.ProcAttr{
		Dir:   "/",
		Env:   []string{"GODEBUG=containermaxprocs=0", "CARREL_NS=" + d.mark + string(l.spec.ID)},
		Files: []*os.File{null, null, l.guestLog, told, socket},
		Sys:   d.namespaces(l.first),
	}
	args := []string{stageName, d.mark + string(l.spec.ID)}
	err = apart(func() (err error) {
		l.pid, l.pidfd, err = hosted.Start(d.opts.Executable, args, attr, l.group, func() error {
			// The calling thread ends afterwards: it belongs to apart or to the group's Start.
			if l.mounts == nil {
				return nil
			}
			return enter(l.mounts)
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("new namespaces: %w", err)
	}
	l.ice.add(l.pid)
	return nil
}

// namespaces returns the attributes of a process in namespaces of its own. As root of the host, the
// process stays the host's root until it has opened its devices. From the start it has rights only
// over its own namespaces.
func (d *Driver) namespaces(first uint32) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Setsid:                     true,
		Cloneflags:                 hosted.AllNamespaces,
		UidMappings:                idMap(first, os.Geteuid()),
		GidMappings:                idMap(first, os.Getegid()),
		GidMappingsEnableSetgroups: first != 0,
		// At first the host's root is nobody in the namespace. An execve as nobody loses all
		// capabilities that are not ambient.
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_SETPCAP,
			unix.CAP_SYS_CHROOT, unix.CAP_DAC_OVERRIDE, unix.CAP_CHOWN, unix.CAP_FOWNER},
	}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
