package ns

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/driver"
)

// deviceNames are the devices of a sandbox. None of them reveals or controls anything.
var deviceNames = []string{"null", "zero", "full", "random", "urandom", "tty"}

// Files of /proc that concern more than the sandbox. Files and directories that a kernel does not
// have are skipped.
var (
	// readOnly files control the machine. masked files reveal it: how it was booted, its devices,
	// its disks and their use.
	readOnly = []string{"/proc/sys", "/proc/fs", "/proc/sysrq-trigger"}
	masked   = []string{"/proc/kcore", "/proc/kmsg", "/proc/keys", "/proc/key-users", "/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats",
		"/proc/sched_debug", "/proc/schedstat", "/proc/scsi", "/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/softirqs", "/proc/irq",
		"/proc/kallsyms", "/proc/kpagecount", "/proc/kpageflags", "/proc/kpagecgroup", "/proc/vmallocinfo", "/proc/slabinfo", "/proc/buddyinfo",
		"/proc/pagetypeinfo", "/proc/zoneinfo", "/proc/pressure", "/proc/iomem", "/proc/ioports", "/proc/dma", "/proc/mtrr", "/proc/config.gz",
		"/proc/cmdline", "/proc/bootconfig", "/proc/modules", "/proc/dynamic_debug", "/proc/driver", "/proc/bus", "/proc/devices", "/proc/misc",
		"/proc/consoles", "/proc/fb", "/proc/partitions", "/proc/diskstats", "/proc/mdstat", "/proc/swaps"}
	// sysKept is everything that /sys contains: the files by which programs count processors, and
	// the sandbox's own network.
	sysKept = []string{"/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/devices/virtual/net", "/sys/class/net"}
)

// openDevices opens the host's devices while they are still visible.
func openDevices() (map[string]int, error) {
	out := map[string]int{}
	for _, name := range deviceNames {
		m, err := unix.OpenTree(unix.AT_FDCWD, "/dev/"+name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return nil, &os.PathError{Op: "open_tree", Path: "/dev/" + name, Err: err}
		}
		out[name] = m
	}
	return out, nil
}

// kernel mounts the kernel's filesystems and the guest, in the process's present root.
func (o *order) kernel(devices map[string]int, guest int) error {
	for _, dir := range []string{"/proc", "/sys", "/dev", driver.GuestMount} {
		if err := realDir(dir); err != nil {
			return err
		}
	}
	if err := place(guest, driver.GuestMount); err != nil {
		return err
	}
	if err := remountReadOnly(driver.GuestMount, o.NoSetuid); err != nil {
		return err
	}
	if err := mountProc("/proc"); err != nil {
		return err
	}
	if err := mountSys(); err != nil {
		return err
	}
	if err := o.mountDev(devices); err != nil {
		return err
	}
	return mask()
}

// realDir makes sure that a name is a directory. A template may have a link there.
func realDir(name string) error {
	info, err := os.Lstat(name)
	if err == nil && info.IsDir() {
		return nil
	}
	if err == nil {
		err = os.Remove(name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Mkdir(name, 0o755)
}

// mountProc mounts the /proc of this pid namespace.
func mountProc(dir string) error {
	if err := unix.Mount("proc", dir, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return &os.PathError{Op: "mount proc", Path: dir, Err: err}
	}
	return nil
}

// mountSys makes a /sys of the few directories in sysKept. If the kernel gives this namespace no
// sysfs, it makes an empty one.
func mountSys() error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	kept := map[string]int{}
	err := unix.Mount("sysfs", "/sys", "sysfs", flags|unix.MS_RDONLY, "")
	switch {
	case err == nil:
		for _, name := range sysKept {
			m, err := unix.OpenTree(unix.AT_FDCWD, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
			if errors.Is(err, unix.ENOENT) {
				continue
			}
			if err != nil {
				return &os.PathError{Op: "open_tree", Path: name, Err: err}
			}
			kept[name] = m
		}
		if err := unix.Unmount("/sys", unix.MNT_DETACH); err != nil {
			return &os.PathError{Op: "unmount", Path: "/sys", Err: err}
		}
	case !errors.Is(err, unix.EPERM):
		return &os.PathError{Op: "mount", Path: "/sys", Err: err}
	}
	if err := unix.Mount("tmpfs", "/sys", "tmpfs", flags, "mode=755,size=16k"); err != nil {
		return &os.PathError{Op: "mount", Path: "/sys", Err: err}
	}
	for name, m := range kept {
		if err := os.MkdirAll(name, 0o755); err != nil {
			return err
		}
		if err := place(m, name); err != nil {
			return err
		}
	}
	return remountReadOnly("/sys", true)
}

// mountDev makes /dev with the few devices, terminals and shared memory.
func (o *order) mountDev(devices map[string]int) error {
	if err := unix.Mount("dev", "/dev", "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=755,"+devBytes); err != nil {
		return &os.PathError{Op: "mount tmpfs", Path: "/dev", Err: err}
	}
	for _, name := range deviceNames {
		f, err := os.OpenFile("/dev/"+name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
		if err != nil {
			return err
		}
		_ = f.Close() // empty
		if err := place(devices[name], "/dev/"+name); err != nil {
			return err
		}
	}
	pts := "newinstance,ptmxmode=0666,mode=0620"
	if o.Groups {
		pts += ",gid=5" // "tty", on every Linux
	}
	for _, m := range []struct {
		dir, kind, data string
		flags           uintptr
	}{
		{"/dev/pts", "devpts", pts, unix.MS_NOSUID | unix.MS_NOEXEC},
		{"/dev/shm", "tmpfs", "mode=1777,size=" + itoa(o.ShmBytes), unix.MS_NOSUID | unix.MS_NODEV},
	} {
		if err := os.Mkdir(m.dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.dir, m.kind, m.flags, m.data); err != nil {
			return &os.PathError{Op: "mount " + m.kind, Path: m.dir, Err: err}
		}
	}
	for link, to := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1",
		"stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx"} {
		if err := os.Symlink(to, "/dev/"+link); err != nil {
			return err
		}
	}
	return nil
}

// bootIDFile holds the ID of the host's boot, which is the same for all of its sandboxes.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// ownBootID gives the sandbox a boot ID of its own. Each start of the sandbox counts as a boot.
func ownBootID() error {
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		return err
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	const tmp = "/dev/boot_id"
	if err := os.WriteFile(tmp, fmt.Appendf(nil, "%x-%x-%x-%x-%x\n", b[:4], b[4:6], b[6:8], b[8:10], b[10:]), 0o444); err != nil {
		return err
	}
	if err := unix.Mount(tmp, bootIDFile, "", unix.MS_BIND, ""); err != nil {
		return &os.PathError{Op: "bind", Path: bootIDFile, Err: err}
	}
	return errors.Join(remountReadOnly(bootIDFile, true), os.Remove(tmp))
}

// mask hides the files of /proc that reveal the machine, and makes those that control it read-only.
func mask() error {
	for _, name := range readOnly {
		if err := unix.Mount(name, name, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			if errors.Is(err, unix.ENOENT) {
				continue
			}
			return &os.PathError{Op: "bind", Path: name, Err: err}
		}
		if err := remountReadOnly(name, true); err != nil {
			return err
		}
	}
	if err := ownBootID(); err != nil {
		return err
	}
	for _, name := range masked {
		info, err := os.Lstat(name)
		switch {
		case err != nil || info.Mode()&fs.ModeSymlink != 0:
			continue
		case info.IsDir():
			err = unix.Mount("tmpfs", name, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY, "mode=755,size=4k")
		default:
			err = unix.Mount("/dev/null", name, "", unix.MS_BIND, "")
		}
		if err != nil {
			return &os.PathError{Op: "mask", Path: name, Err: err}
		}
	}
	return nil
}

// remountReadOnly makes a mount read-only. noSetuid also takes the effect from its setuid programs.
func remountReadOnly(name string, noSetuid bool) error {
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NODEV}
	if noSetuid {
		attr.Attr_set |= unix.MOUNT_ATTR_NOSUID
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, name, unix.AT_RECURSIVE, attr); err != nil {
		return &os.PathError{Op: "make read-only", Path: name, Err: err}
	}
	return nil
}
