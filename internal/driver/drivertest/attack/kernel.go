package main

import (
	"os"
	"path/filepath"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pids signals and traces the host's canary process. Argument: PID. The suite checks whether that
// process still lives.
func pids(args []string) {
	pid, err := strconv.Atoi(args[0])
	if err != nil {
		os.Exit(2)
	}
	if unix.Kill(os.Getpid(), 0) == nil {
		control("pids", "own process can be signalled")
	}
	result("ptrace", unix.PtraceAttach(pid), "attached to %d", pid)
	result("seize", sys(unix.SYS_PTRACE, 0x4206, uintptr(pid), 0, 0), "seized %d", pid)
	result("process_vm_readv", readMemory(pid), "read memory of %d", pid)
	fd, err := unix.PidfdOpen(pid, 0)
	if err == nil {
		err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		unix.Close(fd)
	}
	result("pidfd", err, "signalled %d", pid)
	result("kill", unix.Kill(pid, unix.SIGKILL), "killed %d", pid)
	result("setpriority", unix.Setpriority(unix.PRIO_PROCESS, pid, 19), "changed %d", pid)
}

func readMemory(pid int) error {
	b := make([]byte, 8)
	local := []unix.Iovec{{Base: &b[0], Len: 8}}
	_, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&b[0])), Len: 8}}, 0)
	return err
}

func sys(n uintptr, a ...uintptr) error {
	var args [6]uintptr
	copy(args[:], a)
	if _, _, e := unix.Syscall6(n, args[0], args[1], args[2], args[3], args[4], args[5]); e != 0 {
		return e
	}
	return nil
}

// syscalls makes system calls that a sandbox has no need of. Argument: KEY, the description of a
// key that the host holds.
func syscalls(args []string) {
	if sys(unix.SYS_GETPID) == nil {
		control("syscalls", "system calls work")
	}
	var perf unix.PerfEventAttr
	perf.Type, perf.Config, perf.Size = unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CPU_CLOCK, uint32(unsafe.Sizeof(perf))
	_, err := unix.PerfEventOpen(&perf, -1, 0, -1, 0)
	result("perf_event_open", err, "opened for the whole machine")
	var attr [128]byte
	attr[0], attr[4], attr[8], attr[12] = 2, 4, 8, 1 // an array map
	result("bpf", sys(unix.SYS_BPF, 0, uintptr(unsafe.Pointer(&attr[0])), uintptr(len(attr))), "made a map")
	var ring [120]byte
	result("io_uring_setup", sys(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&ring[0]))), "made a ring")
	result("userfaultfd", sys(unix.SYS_USERFAULTFD, 0), "made one")
	result("kexec_load", sys(unix.SYS_KEXEC_LOAD, 0, 0, 0, 0), "cleared")
	result("reboot", sys(unix.SYS_REBOOT, unix.LINUX_REBOOT_MAGIC1, unix.LINUX_REBOOT_MAGIC2, unix.LINUX_REBOOT_CMD_CAD_OFF), "accepted")
	name, _ := unix.BytePtrFromString("/tmp/no-such-swap")
	result("swapon", notMissing(sys(unix.SYS_SWAPON, uintptr(unsafe.Pointer(name)), 0)), "tried to open it")
	empty, _ := unix.BytePtrFromString("")
	junk := make([]byte, 64)
	result("init_module", notBad(sys(unix.SYS_INIT_MODULE, uintptr(unsafe.Pointer(&junk[0])), 64, uintptr(unsafe.Pointer(empty)))), "looked at the module")
	result("keyctl", findKey(args[0]), "found the host's key")
	_, err = unix.OpenByHandleAt(unix.AT_FDCWD, unix.NewFileHandle(1, make([]byte, 8)), unix.O_RDONLY)
	result("open_by_handle_at", err, "opened")
	result("settimeofday", sys(unix.SYS_CLOCK_SETTIME, unix.CLOCK_REALTIME, uintptr(unsafe.Pointer(&unix.Timespec{Sec: 1}))), "set the clock")
	_, err = unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0)
	result("vsock", err, "made a socket")
	result("iopl", sys(unix.SYS_IOPL, 3), "granted")
}

// notMissing and notBad turn some errors into success: those of a kernel that has checked the
// permission and went on to look at the argument. So only a missing permission counts as a refusal.
func notMissing(err error) error {
	if err == unix.ENOENT {
		return nil
	}
	return err
}

func notBad(err error) error {
	if err == unix.ENOEXEC {
		return nil
	}
	return err
}

func findKey(description string) error {
	for _, ring := range []int{unix.KEY_SPEC_SESSION_KEYRING, unix.KEY_SPEC_USER_KEYRING, unix.KEY_SPEC_USER_SESSION_KEYRING} {
		if _, err := unix.KeyctlSearch(ring, "user", description, 0); err == nil {
			return nil
		}
	}
	_, err := unix.RequestKey("user", description, "", 0)
	if err == nil {
		return nil
	}
	return err
}

// terminals types into every terminal it can open.
func terminals([]string) {
	typed := func(name string, fd int) {
		c := byte('!')
		result("tiocsti "+name, sys(unix.SYS_IOCTL, uintptr(fd), unix.TIOCSTI, uintptr(unsafe.Pointer(&c))), "typed")
	}
	for fd := range 16 {
		typed("fd "+strconv.Itoa(fd), fd)
	}
	var all []string
	for _, p := range []string{"/dev/pts/*", "/dev/tty*", "/dev/console", "/proc/1/fd/*"} {
		m, _ := filepath.Glob(p)
		all = append(all, m...)
	}
	for _, p := range all {
		fd, err := unix.Open(p, unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		typed(p, fd)
		_ = unix.Close(fd)
	}
	control("tty", "tried %d terminals", len(all)+16)
}
