//go:build linux

// Command carrel-init is the first process of a virtual machine of the tier microvm. It loads the
// modules that the machine's devices need, builds the sandbox's filesystem out of the machine's
// disks, makes the network, and then becomes the guest (carrel-guest), or systemd if the template wants
// that (systemd.go): no process of its own is left.
//
// It reads its order (package boot) from the kernel's command line. When a step fails it says so on
// the console and ends the machine, and the driver reports that line.
package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/microvm/boot"
	"github.com/carrel-dev/carrel/internal/linux/ext4"
	"github.com/carrel-dev/carrel/internal/linux/tap"
)

// Directories of the initrd. They disappear from sight when the sandbox's root takes their place.
const (
	lowerDir = "/lower" // the template
	writeDir = "/write" // the disk for the sandbox's writes
	rootDir  = "/new"   // the sandbox's root

	upperName = "upper" // in writeDir: the changes of the template
)

// Bounds inside.
const (
	maxOpenFiles  = 65536 // per process
	kernelThreads = 256   // room for the kernel's own, beside the sandbox's processes
	diskPatience  = 10 * time.Second
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "carrel-init: this is the first process of a virtual machine, and nothing else")
		os.Exit(1)
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "carrel-init:", err)
	}
	end()
}

// end ends the machine.
func end() {
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART) // the VMM ends at a reset
	select {}
}

// run does everything. It returns only after an error or a trial.
func run() error {
	for _, m := range []mount{
		{"devtmpfs", "/dev", "devtmpfs", "mode=755", unix.MS_NOSUID},
		{"proc", "/proc", "proc", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	} {
		if err := m.make(); err != nil {
			return err
		}
	}
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	order, err := boot.Decode(string(line))
	if err != nil {
		return err
	}
	if err := loadModules("/" + boot.Modules); err != nil {
		return err
	}
	if order.Trial {
		fmt.Fprintln(os.Stdout, boot.Works)
		return nil
	}
	if order.Extract {
		return extract()
	}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"disks", func() error { return mountDisks(order.Grow) }},
		{"kernel's filesystems", func() error { return mountKernel(order) }},
		{"network", func() error { return tap.Configure(order.MTU) }},
		{"host name", func() error { return unix.Sethostname([]byte(order.Hostname)) }},
		{"limits", func() error { return limit(order) }},
		{"root", enterRoot},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return becomeFirst(order)
}

// mount is one mount.
type mount struct {
	source, target, kind, options string
	flags                         uintptr
}

func (m mount) make() error {
	if err := os.MkdirAll(m.target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.options); err != nil {
		return &os.PathError{Op: "mount " + m.kind, Path: m.target, Err: err}
	}
	return nil
}

// loadModules loads all modules of a directory, by their order in it.
func loadModules(dir string) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("load %s: %w", e.Name(), err)
		}
	}
	return nil
}

// mountDisks lays the writable layer over the template, and mounts the guest in it. With grow the
// layer's filesystem is smaller than its disk.
func mountDisks(grow bool) error {
	for _, disk := range []string{boot.RootDisk, boot.GuestDisk, boot.WriteDisk} {
		if err := await(disk); err != nil {
			return err
		}
	}
	if grow {
		if err := growDisk(); err != nil {
			return fmt.Errorf("grow the disk: %w", err)
		}
	}
	upper, work := filepath.Join(writeDir, upperName), filepath.Join(writeDir, "work")
	for _, m := range []mount{
		{boot.RootDisk, lowerDir, "erofs", "", unix.MS_RDONLY},
		{boot.WriteDisk, writeDir, "ext4", "", unix.MS_NOATIME},
	} {
		if err := m.make(); err != nil {
			return err
		}
	}
	// An overlay that was not unmounted left a mark there, by which the next one refuses.
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	for _, dir := range []string{upper, work} {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	// The layer does not outlive the host, so there is no need to wait for the disk.
	layers := mount{"overlay", rootDir, "overlay", "lowerdir=" + lowerDir + ",upperdir=" + upper + ",workdir=" + work + ",volatile", 0}
	if err := layers.make(); err != nil {
		return err
	}
	at := filepath.Join(rootDir, driver.GuestMount)
	if err := realDir(at); err != nil {
		return err
	}
	return mount{boot.GuestDisk, at, "erofs", "", unix.MS_RDONLY | unix.MS_NODEV}.make()
}

// growDisk makes the filesystem as large as its disk.
func growDisk() error {
	disk, err := os.OpenFile(boot.WriteDisk, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	size, err := disk.Seek(0, io.SeekEnd)
	if err == nil {
		err = ext4.Grow(disk, size)
	}
	return errors.Join(err, disk.Sync(), disk.Close())
}

// await waits for a device, which its module may make a little later.
func await(device string) error {
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		_, err := os.Stat(device)
		if err == nil || time.Since(began) > diskPatience {
			return err
		}
	}
}

// mountKernel mounts the kernel's filesystems in the sandbox's root. The kernel is the sandbox's
// own, so nothing of it is hidden.
func mountKernel(order boot.Order) error {
	const strict = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	for _, dir := range []string{"/proc", "/sys", "/dev"} {
		if err := realDir(rootDir + dir); err != nil {
			return err
		}
	}
	for _, m := range []mount{
		{"proc", rootDir + "/proc", "proc", "", strict},
		{"sysfs", rootDir + "/sys", "sysfs", "", strict},
		{"cgroup2", rootDir + "/sys/fs/cgroup", "cgroup2", "", strict},
		{"devtmpfs", rootDir + "/dev", "devtmpfs", "mode=755", unix.MS_NOSUID},
		{"devpts", rootDir + "/dev/pts", "devpts", "mode=620,ptmxmode=666,gid=5", unix.MS_NOSUID | unix.MS_NOEXEC},
		{"tmpfs", rootDir + "/dev/shm", "tmpfs", fmt.Sprintf("mode=1777,size=%dm", order.ShmMB), unix.MS_NOSUID | unix.MS_NODEV},
	} {
		if err := m.make(); err != nil {
			return err
		}
	}
	if err := mountModules(); err != nil {
		return err
	}
	for name, to := range map[string]string{"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		if err := os.Symlink(to, rootDir+"/dev/"+name); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// nodes are the devices whose modules the kernel loads when they are opened.
var nodes = map[string]int{
	"/dev/fuse": int(unix.Mkdev(10, 229)), "/dev/net/tun": int(unix.Mkdev(10, 200)), "/dev/loop-control": int(unix.Mkdev(10, 237)),
}

// mountModules shows the store of modules in the sandbox's root, and has the kernel ask the guest
// for them. A machine without them is one whose kernel has everything built in.
func mountModules() error {
	at := rootDir + boot.MoreMount
	if _, err := os.Stat("/" + boot.Store); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := unix.Mount("/"+boot.More, at, "", unix.MS_BIND, ""); errors.Is(err, fs.ErrNotExist) {
		return nil // the image is an older guest's, which loads none
	} else if err != nil {
		return &os.PathError{Op: "bind", Path: at, Err: err}
	}
	const flags = unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("", at, "", flags, ""); err != nil {
		return &os.PathError{Op: "remount", Path: at, Err: err}
	}
	if err := os.MkdirAll(rootDir+"/dev/net", 0o755); err != nil {
		return err
	}
	for name, device := range nodes {
		err := unix.Mknod(rootDir+name, unix.S_IFCHR|0o600, device)
		if err == nil && name != "/dev/loop-control" { // both are made for everyone
			err = os.Chmod(rootDir+name, 0o666)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return &os.PathError{Op: "mknod", Path: name, Err: err}
		}
	}
	return os.WriteFile(boot.ModprobeAt, []byte(driver.GuestPath), 0)
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

// limit sets the limits that every process inside inherits. Root inside can raise them again: the
// machine is the wall.
func limit(order boot.Order) error {
	if order.Pids > 0 {
		if err := os.WriteFile("/proc/sys/kernel/threads-max", fmt.Append(nil, order.Pids+kernelThreads), 0); err != nil {
			return err
		}
	}
	for what, most := range map[int]uint64{unix.RLIMIT_NOFILE: maxOpenFiles, unix.RLIMIT_NPROC: uint64(order.Pids), unix.RLIMIT_CORE: 0} {
		if err := unix.Setrlimit(what, &unix.Rlimit{Cur: most, Max: most}); err != nil {
			return os.NewSyscallError("setrlimit", err)
		}
	}
	return nil
}

// enterRoot frees the initrd's memory and makes the sandbox's root the root.
func enterRoot() error {
	if err := os.Chdir(rootDir); err != nil {
		return err
	}
	for _, name := range []string{boot.Init, boot.Modules} {
		_ = os.RemoveAll("/" + name)
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return os.NewSyscallError("mount move", err)
	}
	if err := unix.Chroot("."); err != nil {
		return os.NewSyscallError("chroot", err)
	}
	return os.Chdir("/")
}
