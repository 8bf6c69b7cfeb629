package seccomp

//go:generate go run mktable.go

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Install compiles f and applies it to the calling thread. The thread must be locked and have
// no_new_privs. Install returns the listener's descriptor; nil if nothing is watched. Programs that
// the thread executes or starts later have the filter too; the other threads of the process do not.
//
// A chain of filters has one listener. In a process that already has one the error is EBUSY, and
// the caller can install f.Quiet() instead.
//
// On kernels from 5.19 on, a call that a listener has taken waits for its answer even when a signal
// comes. So it is answered once; only death ends it early.
func Install(f Filter) (*os.File, error) {
	code, watches := compile(f)
	flags := uintptr(0)
	if watches {
		flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	}
	fd, errno := install(code, flags)
	if errno == unix.EINVAL && watches {
		fd, errno = install(code, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER)
	}
	switch {
	case errno == unix.EACCES:
		return nil, fmt.Errorf("seccomp: install the filter: %w (it needs no_new_privs first)", errno)
	case errno == unix.EBUSY:
		return nil, fmt.Errorf("seccomp: install the filter: %w (this process lies in a box that is watched already)", errno)
	case errno != 0:
		return nil, fmt.Errorf("seccomp: install the filter: %w", errno)
	case !watches:
		return nil, nil
	}
	return os.NewFile(uintptr(fd), "seccomp listener"), nil
}

func install(code []unix.SockFilter, flags uintptr) (int, unix.Errno) {
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(code)
	return int(fd), errno
}
