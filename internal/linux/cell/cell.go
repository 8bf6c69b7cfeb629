//go:build linux

// Package cell starts parts of our own binary in an empty environment, where they give up all
// rights. It serves two purposes: work on bytes that a sandbox has written, and whole sandboxes
// that need no host, such as those of the simulated tier.
//
// A cell is a process in namespaces of its own, under a user that owns nothing. Its root is an
// empty read-only directory, and it has no capabilities. A filter allows it only to use its
// descriptors and its memory. It reaches the files that it was given as descriptors, and nothing
// else.
package cell

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/proc"
	"github.com/carrel-dev/carrel/internal/linux/seccomp"
)

// nobody is the user inside.
const nobody = 65534

// Start starts cmd as host user uid. cmd must be a part of our own binary that calls [Enter] first.
// A caller that is not root gives its own uid. The cell inherits only the files of cmd.
func Start(cmd *exec.Cmd, uid int) error {
	gid := uid
	if os.Geteuid() != 0 {
		gid = os.Getegid()
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true,
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS |
			unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Credential:                 &syscall.Credential{Uid: nobody, Gid: nobody},
		UidMappings:                []syscall.SysProcIDMap{{ContainerID: nobody, HostID: uid, Size: 1}},
		GidMappings:                []syscall.SysProcIDMap{{ContainerID: nobody, HostID: gid, Size: 1}},
		GidMappingsEnableSetgroups: os.Geteuid() == 0,
		// The cell needs these to make its empty root. It gives them up before it does anything
		// else, and they mean nothing outside its namespaces.
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SYS_CHROOT},
		Pdeathsig:   0, // it follows the parent's thread, which may end early
	}
	cmd.Dir = "/"
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return os.NewSyscallError("close_range", err)
	}
	return proc.Alone(cmd.Start)
}

// Limits bound a cell.
type Limits struct {
	Memory   uint64   // bytes of data, 0: no bound
	Files    uint64   // descriptors; 0: as many as at its start
	CPU      uint64   // seconds, 0: no bound
	FileSize uint64   // bytes in one file, 0: no bound
	Also     []string // system calls besides those of every cell
}

// calls are the system calls of every cell: for its descriptors, its memory, its threads and the
// clock.
var calls = []string{"read", "write", "pread64", "pwrite64", "readv", "writev", "preadv", "pwritev", "lseek", "fstat", "ftruncate", "fallocate",
	"close", "fcntl", "dup", "recvmsg", "sendmsg", "recvfrom", "sendto", "shutdown", "socketpair", "getsockopt", "setsockopt", "getsockname", "getpeername",
	"mmap", "munmap", "mprotect", "madvise", "mincore", "membarrier", "brk", "mremap",
	"futex", "nanosleep", "clock_nanosleep", "clock_gettime", "sched_yield", "sched_getaffinity",
	"epoll_create1", "epoll_ctl", "epoll_pwait", "eventfd2", "ppoll", "pipe2",
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "timer_create", "timer_settime", "timer_delete",
	"getpid", "gettid", "tgkill", "getrandom", "prctl", "clone", "rseq", "set_robust_list", "exit", "exit_group", "restart_syscall"}

// Enter takes all rights from this process. [Start] must have made the process. The process must
// have read before everything that it needs of the host.
func Enter(l Limits) error {
	if os.Getpid() != 1 || os.Getuid() != nobody {
		return fmt.Errorf("cell: not in namespaces of its own")
	}
	if err := emptyRoot(); err != nil {
		return fmt.Errorf("cell: %w", err)
	}
	limits := map[int]uint64{unix.RLIMIT_CORE: 0}
	for what, most := range map[int]uint64{unix.RLIMIT_DATA: l.Memory, unix.RLIMIT_NOFILE: l.Files, unix.RLIMIT_CPU: l.CPU, unix.RLIMIT_FSIZE: l.FileSize} {
		if most > 0 {
			limits[what] = most
		}
	}
	for what, most := range limits {
		if err := unix.Setrlimit(what, &unix.Rlimit{Cur: most, Max: most}); err != nil {
			return fmt.Errorf("cell: %w", os.NewSyscallError("setrlimit", err))
		}
	}
	if err := dropAll(); err != nil {
		return fmt.Errorf("cell: %w", err)
	}
	if err := seccomp.InstallOnly(slices.Concat(calls, l.Also)...); err != nil {
		return fmt.Errorf("cell: %w", err)
	}
	return nil
}

// emptyRoot makes an empty, read-only directory the root.
func emptyRoot() error {
	root := os.TempDir()
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return os.NewSyscallError("mount slave", err)
	}
	if err := unix.Mount("carrel-cell", root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY, "size=4k"); err != nil {
		return os.NewSyscallError("mount root", err)
	}
	if err := unix.Chdir(root); err != nil {
		return os.NewSyscallError("chdir", err)
	}
	// Both arguments are the same place: the old root then lies on top and is unmounted
	// (pivot_root(2)).
	if err := unix.PivotRoot(".", "."); err != nil {
		return os.NewSyscallError("pivot_root", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return os.NewSyscallError("umount", err)
	}
	return os.NewSyscallError("chdir", unix.Chdir("/"))
}

// dropAll empties the capabilities of all threads and prevents that any come back.
func dropAll() error {
	for _, args := range [][2]uintptr{{unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL}, {unix.PR_SET_NO_NEW_PRIVS, 1}, {unix.PR_SET_DUMPABLE, 0}} {
		if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, args[0], args[1], 0, 0, 0, 0); errno != 0 {
			return os.NewSyscallError("prctl", errno)
		}
	}
	header := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := &[2]unix.CapUserData{}
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(header)), uintptr(unsafe.Pointer(data)), 0); errno != 0 {
		return os.NewSyscallError("capset", errno)
	}
	return nil
}
