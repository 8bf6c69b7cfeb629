//go:build linux

package box

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// limits sets the limits of this process and its later children.
func (b *builder) limits() error {
	// The kernel would write a core file by its own pattern, perhaps through a program outside.
	// With a limit of one byte it writes none: https://man7.org/linux/man-pages/man5/core.5.html
	set := map[int]uint64{unix.RLIMIT_CORE: 1}
	if n := b.Spec.Limits.FileSize; n > 0 {
		set[unix.RLIMIT_FSIZE] = uint64(n)
	}
	if n := b.Spec.Limits.OpenFiles; n > 0 {
		set[unix.RLIMIT_NOFILE] = uint64(n)
	}
	if b.NProc > 0 {
		set[unix.RLIMIT_NPROC] = b.NProc
	}
	for which, n := range set {
		var now syscall.Rlimit
		if err := syscall.Getrlimit(which, &now); err != nil {
			return os.NewSyscallError("getrlimit", err)
		}
		n = min(n, now.Max)
		if err := syscall.Setrlimit(which, &syscall.Rlimit{Cur: n, Max: n}); err != nil {
			return os.NewSyscallError("setrlimit", err)
		}
	}
	return b.processors()
}

// processors limits this thread, and its later children, to a number of processors.
func (b *builder) processors() error {
	if b.CPUs == 0 {
		return nil
	}
	var have, want unix.CPUSet
	if err := unix.SchedGetaffinity(0, &have); err != nil {
		return os.NewSyscallError("sched_getaffinity", err)
	}
	// Don't always choose the first ones, because other boxes use them, too.
	const most = len(have) * 64
	for i, n := os.Getppid(), 0; n < most && want.Count() < b.CPUs; i, n = i+1, n+1 {
		if have.IsSet(i % most) {
			want.Set(i % most)
		}
	}
	return os.NewSyscallError("sched_setaffinity", unix.SchedSetaffinity(0, &want))
}

// killAll ends all processes that a box without a pid namespace has started. stage made this
// process a reaper, so each of them becomes its child when its own parent dies. Two threads may
// call killAll at once.
func (b *builder) killAll() {
	for {
		for _, pid := range proc.Children(os.Getpid()) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		var ws syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil); {
		case err == syscall.ECHILD:
			return
		case pid == 0:
			_ = unix.Nanosleep(&unix.Timespec{Nsec: 200_000}, nil)
		}
	}
}
