package early

import (
	"runtime"
	"syscall"
	"unsafe"
)

// memory makes a memory file; -1 if it can't. Package unix has this call, but is initialised too
// late.
func memory(flags uintptr) int {
	call := map[string]uintptr{"amd64": 319, "arm64": 279}[runtime.GOARCH]
	if call == 0 {
		return -1
	}
	name := [...]byte{'c', 'a', 'r', 'r', 'e', 'l', '-', 'r', 'u', 'n', 0}
	fd, _, errno := syscall.RawSyscall(call, uintptr(unsafe.Pointer(&name)), flags, 0)
	if errno != 0 {
		return -1
	}
	return int(fd)
}
