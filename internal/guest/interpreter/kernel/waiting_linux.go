package kernel

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// bytesWaiting asks how many bytes a pipe holds.
const bytesWaiting = unix.TIOCINQ

// attributes are those of a kernel's process: it leads a group, and dies with the interpreter, even
// if that is killed.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
