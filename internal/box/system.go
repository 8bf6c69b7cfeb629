//go:build linux

package box

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/ns"
)

// device is a device of this machine that the box gets.
type device struct {
	name string
	tree int
}

// usualDevices are the devices that most programs need.
var usualDevices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// gatherDevices copies the devices. Later the tree forbids them.
func (b *builder) gatherDevices() error {
	if err := b.begin.devices(); err != nil {
		return err
	}
	return b.copyDevices(b.Spec.Devices)
}

// gatherUsual copies the devices of every box.
func (b *builder) gatherUsual() error {
	paths := make([]string, 0, len(usualDevices))
	for _, n := range usualDevices {
		paths = append(paths, "/dev/"+n)
	}
	return b.copyDevices(paths)
}

func (b *builder) copyDevices(paths []string) error {
	for _, path := range paths {
		tree, err := ns.CloneFile(path)
		if ns.Missing(err) {
			b.missing = append(b.missing, "no "+path+" here")
			continue
		}
		if err != nil {
			return err
		}
		b.devices = append(b.devices, device{path[len("/dev/"):], tree})
	}
	return nil
}

const (
	defaultTmp = 1 << 30
	defaultShm = 256 << 20
)

// dev makes /dev.
func (b *builder) dev() error {
	if err := b.mountTmpfs("/dev", "mode=0755,size=64k", unix.MS_NOSUID|unix.MS_NOEXEC); err != nil {
		return err
	}
	for _, d := range b.devices {
		fd, err := unix.Open("/dev/"+d.name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return &os.PathError{Op: "create", Path: "/dev/" + d.name, Err: err}
		}
		// Read-only does not prevent writes to a device. But it keeps a command that is root
		// outside from changing the device's mode.
		if err = ns.Attr(d.tree, ns.ReadOnly|ns.NoSUID|ns.NoExec, false); err == nil {
			err = ns.AttachPath(d.tree, "/dev/"+d.name)
		}
		_ = unix.Close(fd)
		_ = unix.Close(d.tree)
		if err != nil {
			return err
		}
	}
	for _, dir := range []string{"/dev/pts", "/dev/shm"} {
		if err := unix.Mkdir(dir, 0o755); err != nil {
			return &os.PathError{Op: "mkdir", Path: dir, Err: err}
		}
	}
	for name, to := range map[string]string{"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"} {
		if err := unix.Symlink(to, "/dev/"+name); err != nil {
			return &os.PathError{Op: "symlink", Path: "/dev/" + name, Err: err}
		}
	}
	if err := unix.Mount("devpts", "/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0600"); err != nil {
		return &os.PathError{Op: "mount devpts", Path: "/dev/pts", Err: err}
	}
	if err := b.makeMasks(); err != nil {
		return err
	}
	b.mountFuse()
	size := b.Spec.ShmSize
	if size == 0 {
		size = defaultShm
	}
	if err := b.mountTmpfs("/dev/shm", "mode=1777,size="+strconv.FormatInt(size, 10), unix.MS_NOSUID|unix.MS_NODEV); err != nil {
		return err
	}
	return ns.AttrPath("/dev", ns.ReadOnly, false)
}

// mountTmpfs mounts an empty filesystem of this box over one of our own paths.
func (b *builder) mountTmpfs(path, options string, flags uintptr) error {
	if err := unix.Mount("tmpfs", path, "tmpfs", flags, options); err != nil {
		return &os.PathError{Op: "mount tmpfs", Path: path, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	b.own[st.Dev] = true
	return nil
}

// Paths in /proc and /sys that concern the whole machine. Nobody may change the first list, not
// even a user who is root outside, and not through a file that somebody left writable. The second
// list reveals too much.
var (
	frozen = []string{"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi", "/proc/scsi", "/proc/driver", "/proc/mtrr"}
	masked = []string{"/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/kmsg", "/proc/timer_list", "/proc/sched_debug", "/proc/latency_stats",
		"/proc/kpageflags", "/proc/kpagecount", "/proc/kpagecgroup", "/proc/vmallocinfo", "/proc/slabinfo", "/proc/iomem", "/proc/ioports",
		"/sys/firmware", "/sys/kernel/debug", "/sys/kernel/tracing", "/sys/kernel/security", "/sys/fs/bpf", "/sys/fs/pstore", "/sys/devices/virtual/powercap"}
)

// gatherKernel makes /proc and copies /sys for another root. Later that is impossible: the kernel
// mounts a /proc only where one is already visible.
func (b *builder) gatherKernel() (err error) {
	if b.Spec.Root.Host {
		return nil
	}
	if b.proc, err = ns.Filesystem("proc", ns.NoSUID|ns.NoDev|ns.NoExec); err != nil {
		return procError(err)
	}
	if b.sys, err = ns.CloneFile("/sys"); err != nil {
		if ns.Missing(err) {
			return nil
		}
		return err
	}
	return ns.Private(b.sys, ns.ReadOnly|ns.NoSUID|ns.NoDev|ns.NoExec)
}

// mountKernel mounts /proc. If the root has no /sys, it mounts that, too.
func (b *builder) mountKernel() error {
	if b.proc < 0 {
		if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return procError(err)
		}
		return nil
	}
	if err := ns.AttachPath(b.proc, "/proc"); err != nil {
		return err
	}
	if b.sys < 0 {
		return nil
	}
	return ns.AttachPath(b.sys, "/sys")
}

// kernel mounts a /proc of the box's own processes. It closes the parts of /proc and /sys that are
// not for the box.
func (b *builder) kernel() error {
	if err := b.mountKernel(); err != nil {
		return err
	}
	for _, path := range frozen {
		tree, err := ns.CloneFile(path)
		if ns.Missing(err) {
			continue
		}
		if err == nil {
			err = ns.Attr(tree, ns.ReadOnly, true)
		}
		if err == nil {
			err = ns.AttachPath(tree, path)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		_ = unix.Close(tree)
	}
	for _, path := range masked {
		if err := b.cover(path, false); err != nil {
			return err
		}
	}
	return nil
}

// private makes /tmp and /run.
func (b *builder) private() error {
	if !b.Spec.NoTmp {
		size := b.Spec.TmpSize
		if size == 0 {
			size = defaultTmp
		}
		err := b.mountTmpfs("/tmp", "mode=1777,size="+strconv.FormatInt(size, 10), unix.MS_NOSUID|unix.MS_NODEV)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := b.run(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// kept are places in /run that hold programs, not sockets, on some systems.
var kept = []string{"/run/current-system", "/run/booted-system", "/run/opengl-driver"}

// run makes /run.
func (b *builder) run() error {
	links := map[string]string{}
	for _, path := range kept {
		if to, err := os.Readlink(path); err == nil {
			links[path] = to
		}
	}
	if err := b.mountTmpfs("/run", "mode=0755,size=64m", unix.MS_NOSUID|unix.MS_NODEV); err != nil {
		return err
	}
	for path, to := range links {
		if err := unix.Symlink(to, path); err != nil {
			return &os.PathError{Op: "symlink", Path: path, Err: err}
		}
	}
	return nil
}
