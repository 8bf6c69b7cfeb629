package gvisor

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The sentry makes the CPUID instruction fault in the processes it runs, to answer in the
// processor's place. A program executes CPUID some hundred times at its start: the C library and
// Go's runtime look for features and caches. Each fault goes through a signal into the sentry,
// which takes a third of the time of a short command.
//
// gVisor needs the faults only to restore a checkpoint on another kind of processor. We refuse that
// anyway, and on a processor that can't fault the sentry works without it. So programs read the
// hardware's own answer. They learn the processor's model and features, as they do from
// /proc/cpuinfo.

// archSetCPUID is ARCH_SET_CPUID of arch_prctl(2).
const archSetCPUID = 0x1012

// keepCPUID makes arch_prctl(ARCH_SET_CPUID) do nothing and succeed, in this process and in all its
// later children. It adds a filter beside gVisor's own filter, and can only narrow that one.
func keepCPUID() error {
	const nr, arg0 = 0, 16 // offsets in struct seccomp_data
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: nr},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_ARCH_PRCTL, Jt: 0, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: arg0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: archSetCPUID, Jt: 0, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO}, // with errno 0: success
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return errno
	}
	return nil
}
