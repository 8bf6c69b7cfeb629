package gvisor

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/cpuid"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/runsc/cmd/sandboxsetup"
)

// A part that reads what a sentry wrote must expect the worst: the sentry might
// have been taken over, and decoding its state is a lot of code. So the part runs
// in the namespaces and under the uid of a sandbox, and gives up the rest before it
// reads the first byte.

// What such a part may use up.
const (
	confinedCPU    = 10 * 60 // seconds
	confinedMemory = 4 << 30 // bytes
	confinedWrites = 1 << 40 // bytes in one file
	confinedFiles  = 64
)

// confinedCalls is all it may ask of the host: to use the descriptors and the
// memory that it has, and to run its own threads.
var confinedCalls = []uintptr{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_PREAD64, unix.SYS_PWRITE64, unix.SYS_READV, unix.SYS_WRITEV,
	unix.SYS_PREADV, unix.SYS_PWRITEV, unix.SYS_LSEEK, unix.SYS_FSTAT, unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE,
	unix.SYS_CLOSE, unix.SYS_FCNTL, unix.SYS_DUP, unix.SYS_SPLICE, unix.SYS_SENDFILE, unix.SYS_COPY_FILE_RANGE,
	unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_MINCORE, unix.SYS_MEMBARRIER, unix.SYS_BRK, unix.SYS_MEMFD_CREATE,
	unix.SYS_FUTEX, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2, unix.SYS_PPOLL,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK,
	unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_TGKILL, unix.SYS_GETRANDOM, unix.SYS_PRCTL,
	unix.SYS_CLONE, unix.SYS_RSEQ, unix.SYS_SET_ROBUST_LIST, unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_RESTART_SYSCALL,
}

// confined is a part that confines itself and ends with what run returns.
func confined(run func() error) func() {
	return func() {
		log.SetLevel(log.Warning)
		time.Local = time.UTC // or the first line of the log looks for the host's time zone
		cpuid.Initialize()    // reads /proc
		err := confine()
		if err == nil {
			err = run()
		}
		if err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// confine takes all rights from this process. It must be in namespaces of its own.
func confine() error {
	if os.Getpid() != 1 || os.Getuid() != nobody {
		return fmt.Errorf("not in namespaces of its own")
	}
	root := os.TempDir()
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return os.NewSyscallError("mount slave", err)
	}
	if err := unix.Mount("carrel-root", root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY, "size=4k"); err != nil {
		return os.NewSyscallError("mount root", err)
	}
	if err := sandboxsetup.PivotRoot(root); err != nil {
		return err
	}
	for what, most := range map[int]uint64{
		unix.RLIMIT_CPU: confinedCPU, unix.RLIMIT_DATA: confinedMemory, unix.RLIMIT_FSIZE: confinedWrites,
		unix.RLIMIT_NOFILE: confinedFiles, unix.RLIMIT_CORE: 0,
	} {
		if err := unix.Setrlimit(what, &unix.Rlimit{Cur: most, Max: most}); err != nil {
			return os.NewSyscallError("setrlimit", err)
		}
	}
	if err := dropCapabilities(); err != nil {
		return err
	}
	rules := map[uintptr]seccomp.SyscallRule{}
	for _, nr := range confinedCalls {
		rules[nr] = seccomp.MatchAll{}
	}
	// New threads, but neither processes nor namespaces.
	rules[unix.SYS_CLONE] = seccomp.PerArg{seccomp.MaskedEqual(
		unix.CLONE_THREAD|unix.CLONE_VM|unix.CLONE_NEWUSER|unix.CLONE_NEWPID|unix.CLONE_NEWNS|unix.CLONE_NEWNET, unix.CLONE_THREAD|unix.CLONE_VM)}
	program := &seccomp.Program{
		RuleSets: []seccomp.RuleSet{{Rules: seccomp.MakeSyscallRules(rules), Action: seccomp.Allow}},
	}
	return program.Install(nil)
}

// dropCapabilities empties the capabilities of all threads.
func dropCapabilities() error {
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0); errno != 0 {
		return os.NewSyscallError("prctl", errno)
	}
	header := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := &[2]unix.CapUserData{}
	return setCapabilities(header, data)
}
