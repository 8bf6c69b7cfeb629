package ns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/linux/landlock"
	"github.com/carrel-dev/carrel/internal/linux/seccomp"
	"github.com/carrel-dev/carrel/internal/linux/tap"
	"github.com/carrel-dev/carrel/internal/reexec"
)

// Names of the parts that our own binary plays.
const (
	stageName = "carrel-ns"
)

// Descriptors of the stage beyond the standard ones.
const (
	orderFD  = 3
	socketFD = 4
)

// Parts returns the parts of this driver for [reexec.Run].
func Parts() reexec.Parts { return reexec.Parts{stageName: stage, probeName: try} }

// stage is the first process of the namespaces, until it becomes the guest. It is trusted: it reads
// no byte of the sandbox before the exec.
func stage() {
	runtime.LockOSThread()
	if os.Getpid() != 1 {
		os.Stderr.WriteString("not in namespaces of its own")
		os.Exit(1)
	}
	var o order
	err := hosted.ReadOrder(orderFD, &o)
	if err == nil {
		err = o.build()
	}
	if err != nil {
		text := err.Error()
		_ = unix.Sendmsg(socketFD, []byte(text[:min(len(text), 4000)]), nil, nil, 0)
	}
	os.Exit(126)
}

// build makes the walls, hands out the link and becomes the guest.
func (o *order) build() error {
	unix.Umask(0o022) // files made here are for the sandbox's users, whatever the daemon's umask
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return os.NewSyscallError("mount private", err)
	}
	// The link needs the /proc of this pid namespace. To open the device it needs the host's root.
	if err := mountProc("/proc"); err != nil {
		return err
	}
	link, err := tap.Setup(tap.Config{Device: o.Device})
	if err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"become root inside", becomeRoot},
		{"root", o.root},
		{"host name", func() error { return unix.Sethostname([]byte(o.Hostname)) }},
		{"control group namespace", func() error { return unix.Unshare(unix.CLONE_NEWCGROUP) }},
		{"limits", o.limits},
		{"link", func() error { return tap.Send(socketFD, link) }},
		{"rights", o.dropRights},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	err = syscall.Exec(driver.GuestPath, o.Args, o.Env)
	return fmt.Errorf("start the guest: %w", err)
}

// becomeRoot takes root's ids inside. As root of the host, the process was nobody in here before.
func becomeRoot() error {
	return errors.Join(syscall.Setresgid(0, 0, 0), syscall.Setresuid(0, 0, 0), dropGroups())
}

// dropGroups drops the daemon's supplementary groups if it may. In a user namespace of an ordinary
// user it may not, and there they give no additional right.
func dropGroups() error {
	if err := syscall.Setgroups([]int{}); err != nil && !errors.Is(err, unix.EPERM) {
		return err
	}
	return nil
}

// root builds the filesystem and makes it the process's root.
func (o *order) root() error {
	if o.Binds != nil {
		if err := o.gather(); err != nil {
			return err
		}
	}
	if err := os.Chdir(o.Dir); err != nil {
		return err
	}
	if err := mountOverlay(); err != nil {
		return err
	}
	devices, err := openDevices()
	if err != nil {
		return err
	}
	guest, err := unix.OpenTree(unix.AT_FDCWD, guestName, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return &os.PathError{Op: "open_tree", Path: guestName, Err: err}
	}
	if err := os.Chdir(rootName); err != nil {
		return err
	}
	old, err := unix.Open("/", unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	// The new root now lies over the old one, which only its descriptor still reaches.
	if err := unix.PivotRoot(".", "."); err != nil {
		return os.NewSyscallError("pivot_root", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := o.kernel(devices, guest); err != nil {
		return err
	}
	if err := unix.Fchdir(old); err != nil {
		return err
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return os.NewSyscallError("unmount the old root", err)
	}
	return errors.Join(unix.Close(old), os.Chdir("/"))
}

// gather puts the parts into one directory. It is for an ordinary user, who could not do so before.
func (o *order) gather() error {
	held := map[string]int{}
	for name, from := range o.Binds {
		m, err := unix.OpenTree(unix.AT_FDCWD, from, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return &os.PathError{Op: "open_tree", Path: from, Err: err}
		}
		held[name] = m
	}
	if err := unix.Mount("carrel", o.Dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755,size=64k"); err != nil {
		return &os.PathError{Op: "mount tmpfs", Path: o.Dir, Err: err}
	}
	if err := os.Mkdir(filepath.Join(o.Dir, rootName), 0o755); err != nil {
		return err
	}
	for name, m := range held {
		at := filepath.Join(o.Dir, name)
		if err := os.Mkdir(at, 0o755); err != nil {
			return err
		}
		if err := place(m, at); err != nil {
			return err
		}
	}
	return nil
}

// mountOverlay mounts the writable layer over the template. Its paths are relative, so they contain
// no character with a meaning in the options.
func mountOverlay() error {
	options := "lowerdir=" + lowerName + ",upperdir=" + diskName + "/" + upperName + ",workdir=" + diskName + "/" + workName + ",userxattr"
	// The layer does not outlive the host, so there is no need to wait for the disk.
	err := unix.Mount("overlay", rootName, "overlay", unix.MS_NODEV, options+",volatile")
	if errors.Is(err, unix.EINVAL) {
		err = unix.Mount("overlay", rootName, "overlay", unix.MS_NODEV, options)
	}
	return os.NewSyscallError("mount overlay", err)
}

// limits sets the limits that every process inside inherits.
func (o *order) limits() error {
	for what, most := range map[int]uint64{
		unix.RLIMIT_NOFILE: maxOpenFiles, unix.RLIMIT_NPROC: uint64(o.Pids), unix.RLIMIT_CORE: 0,
	} {
		if err := unix.Setrlimit(what, &unix.Rlimit{Cur: most, Max: most}); err != nil {
			// This user may not have more files. Keep the present limit.
			if what == unix.RLIMIT_NOFILE && errors.Is(err, unix.EPERM) {
				continue
			}
			return err
		}
	}
	return nil
}

// dropRights gives up all rights that the guest must not have. The thread that executes the guest
// comes last: it loses the dangerous system calls.
func (o *order) dropRights() error {
	// Use a new session keyring. The inherited one may hold the daemon's keys.
	if _, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0); err != nil && !errors.Is(err, unix.ENOSYS) {
		return os.NewSyscallError("keyctl", err)
	}
	if err := dropCapabilities(); err != nil {
		return err
	}
	if o.NoSetuid {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return os.NewSyscallError("prctl NO_NEW_PRIVS", err)
		}
	}
	if err := unix.CloseRange(3, 1<<31, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return os.NewSyscallError("close_range", err)
	}
	// This is a second wall behind the pid and network namespaces. If this kernel can't do a part
	// of it, the namespaces still do.
	if _, err := landlock.Restrict(landlock.Ruleset{ScopeSockets: true, ScopeSignals: true}); err != nil {
		return err
	}
	listener, err := seccomp.Install(o.Seccomp)
	if listener != nil {
		_ = listener.Close()
	}
	return err
}

// dropCapabilities leaves the program, which will be root, the capabilities in capabilities and no
// others.
func dropCapabilities() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl CAP_AMBIENT", err)
	}
	if err := clearInheritable(); err != nil {
		return err
	}
	keep := map[uintptr]bool{}
	for _, c := range capabilities {
		keep[c] = true
	}
	for c := uintptr(0); c < 64; c++ {
		if keep[c] {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			if errors.Is(err, unix.EINVAL) {
				break // the kernel has no more
			}
			return os.NewSyscallError("prctl CAPBSET_DROP", err)
		}
	}
	return nil
}

// clearInheritable empties the inheritable set. An execve by root adds that set to the program's
// rights, without any bound.
func clearInheritable() error {
	header := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(header, &data[0]); err != nil {
		return os.NewSyscallError("capget", err)
	}
	data[0].Inheritable, data[1].Inheritable = 0, 0
	return os.NewSyscallError("capset", unix.Capset(header, &data[0]))
}
