//go:build linux

package microvm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/driver/microvm/boot"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/ext4"
	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// diskFile is our file in Spec.Dir: the sandbox's writes.
const diskFile = "disk"

// maxSaid bounds the stage's error, in bytes.
const maxSaid = 4000

// guestEnv is the guest's environment.
var guestEnv = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}

// shmShare is the part of the memory that /dev/shm may hold: one of this many.
const shmShare = 2

// launch holds everything that one VMM is started with. We own its files: the VMM gets copies.
type launch struct {
	spec  driver.Spec // of a trial only ID and Limits are set
	order boot.Order
	from  *saved // nil: it boots
	uid   int
	root  string // identities of the images; root is "" for one that is not whole
	guest string
	group *cgroup.Group

	files []*os.File // the VMM's, from firstFD on
	host  *os.File   // the driver's end of the link, or of the socket on which the stage hands that out

	// These are files that the VMM opens by name, by their names in its root.
	shown, writeable map[string]string

	console *os.File // its text
	vmmLog  *os.File // the VMM's standard error
	pid     int
	pidfd   *os.File
}

// restores reports whether the machine goes on from saved memory.
func (l *launch) restores() bool { return l.from != nil && l.from.memory }

// newLaunch plans a sandbox's machine.
func (d *Driver) newLaunch(spec driver.Spec) *launch {
	return &launch{spec: spec, uid: d.uid(spec.ID), order: boot.Order{
		Hostname: string(spec.ID), Pids: spec.Limits.Pids, ShmMB: spec.Limits.MemoryMB / shmShare,
		Args: []string{driver.GuestPath, "-machine", "-gateway", driver.GatewayIPv4 + "," + driver.GatewayIPv6},
		Env:  guestEnv,
	}}
}

// pair makes a link of sockets. It returns the VMM's end.
func (l *launch) pair() (inside *os.File, err error) {
	l.host, inside, l.order.MTU, err = hosted.NewPair()
	return inside, err
}

// makeDisk makes the sandbox's disk. The caller owns the file, also on an error.
func (l *launch) makeDisk(ctx context.Context) (*os.File, error) {
	disk, err := os.OpenFile(filepath.Join(l.spec.Dir, diskFile), os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	return disk, l.fillDisk(ctx, disk)
}

// addDisks gives QEMU the images and a disk.
func (l *launch) addDisks(ctx context.Context) error {
	disk, err := l.makeDisk(ctx)
	l.files = []*os.File{nil, nil, disk}
	if err != nil {
		return err
	}
	for i, name := range []string{l.spec.Root.Image, l.spec.Guest} {
		if l.files[rootFD-firstFD+i], err = os.Open(name); err != nil {
			return err
		}
	}
	return nil
}

// fillDisk makes an empty filesystem, or copies a snapshot's disk. A machine that boots from files
// lets the filesystem grow to the new disk.
func (l *launch) fillDisk(ctx context.Context, disk *os.File) error {
	if l.from == nil {
		return ext4.Make(disk, int64(l.spec.Limits.DiskMB)<<20)
	}
	size := l.from.side.Sizes[diskFile]
	if err := copySparse(ctx, disk, l.from.files[diskFile], size); err != nil {
		return err
	}
	if more := ext4.Size(int64(l.spec.Limits.DiskMB) << 20); !l.from.memory && more > size {
		l.order.Grow = true
		return disk.Truncate(more)
	}
	return nil
}

// stageOrder is what the stage is told, as an anonymous file.
func (d *Driver) stageOrder(m *machine, l *launch) (*os.File, error) {
	told, err := m.engine.order(d, m, l)
	if err != nil {
		return nil, err
	}
	return hosted.OrderFile(told)
}

// start starts the VMM in its group, and returns when the stage has become it. It closes the VMM's
// files.
func (d *Driver) start(ctx context.Context, m *machine, l *launch) (err error) {
	defer func() { hosted.CloseAll(l.files...) }()
	if l.console, err = hosted.NewGuestLog(); err != nil {
		return err
	}
	if l.vmmLog, err = hosted.NewGuestLog(); err != nil {
		return err
	}
	told, err := d.stageOrder(m, l)
	if err != nil {
		return err
	}
	defer told.Close()
	said, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer said.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		w.Close()
		return err
	}
	defer null.Close()
	attr := &os.ProcAttr{
		Dir:   "/",
		Env:   []string{"GODEBUG=containermaxprocs=0"},
		Files: append([]*os.File{null, l.console, l.vmmLog, told, w}, l.files...),
		Sys:   d.namespaces(m, l.uid),
	}
	l.pid, l.pidfd, err = hosted.Start(d.opts.Executable, []string{stageName, d.mark + string(l.spec.ID)}, attr, l.group, nil)
	w.Close()
	if err != nil {
		return fmt.Errorf("new namespaces: %w", err)
	}
	// If the stage hangs, the end of the context kills it, which also ends the wait.
	stop := context.AfterFunc(ctx, func() { proc.Kill(l.pidfd) })
	defer stop()
	text, err := io.ReadAll(io.LimitReader(said, maxSaid))
	if err == nil && len(text) > 0 {
		err = errors.New(string(text))
	}
	if err == nil {
		return nil
	}
	l.end()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return fmt.Errorf("start the machine: %w", err)
}

// end kills the VMM and waits for its end.
func (l *launch) end() (status string) {
	proc.Kill(l.pidfd)
	return l.wait()
}

// wait waits for the VMM's end.
func (l *launch) wait() (status string) {
	proc.Wait(l.pidfd)
	status = proc.Reap(l.pidfd, l.pid)
	l.pidfd.Close()
	return status
}

// namespaces returns the attributes of a process in namespaces of its own. As root of the host, the
// process stays the host's root until it has opened what it shares. From the start it has rights
// only over its own namespaces. With KVM its group is that of KVM's device.
func (d *Driver) namespaces(m *machine, uid int) *syscall.SysProcAttr {
	gid := os.Getegid()
	if d.root {
		if gid = uid; m.accel == kvm {
			gid = groupOf(d.kvmFile(), gid)
		}
	}
	return &syscall.SysProcAttr{
		Setsid:                     true,
		Cloneflags:                 hosted.AllNamespaces,
		UidMappings:                []syscall.SysProcIDMap{{ContainerID: nobody, HostID: uid, Size: 1}},
		GidMappings:                []syscall.SysProcIDMap{{ContainerID: nobody, HostID: gid, Size: 1}},
		GidMappingsEnableSetgroups: d.root,
		// At first the host's root is nobody in the namespace. An execve as nobody loses all
		// capabilities that are not ambient.
		AmbientCaps: append([]uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SYS_CHROOT, unix.CAP_SETUID, unix.CAP_SETGID}, m.engine.rights()...),
	}
}

// groupOf is the group of a file, or another one if that can't be told.
func groupOf(name string, other int) int {
	var st unix.Stat_t
	if unix.Stat(name, &st) != nil || st.Gid == 0 {
		return other
	}
	return int(st.Gid)
}

// limits are those of a VMM's group.
func (m *machine) limits(l carrel.Limits) cgroup.Limits {
	return cgroup.Limits{Memory: m.vmmMemory(l.MemoryMB), CPUs: l.CPUs, Pids: vmmTasks}
}
