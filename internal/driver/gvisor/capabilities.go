package gvisor

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// setCapabilities sets the capabilities of all threads of this process.
func setCapabilities(header *unix.CapUserHeader, data *[2]unix.CapUserData) error {
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(header)), uintptr(unsafe.Pointer(data)), 0)
	if errno != 0 {
		return os.NewSyscallError("capset", errno)
	}
	return nil
}
