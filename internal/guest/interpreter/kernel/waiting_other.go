//go:build !linux

package kernel

import "syscall"

// bytesWaiting asks how many bytes a pipe holds, on BSDs.
const bytesWaiting = 0x4004667f

// attributes are those of a kernel's process: it leads a group.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
