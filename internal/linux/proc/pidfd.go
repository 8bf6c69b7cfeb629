//go:build linux

package proc

import (
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Kill kills the process of a pidfd.
func Kill(pidfd *os.File) {
	rc, err := pidfd.SyscallConn()
	if err != nil {
		return // closed: it is gone
	}
	_ = rc.Control(func(fd uintptr) { _ = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
}

// Wait returns true when the process of a pidfd has ended, and false when the pidfd was closed. The
// pidfd must not block. Wait holds no thread while it waits.
func Wait(pidfd *os.File) bool {
	rc, err := pidfd.SyscallConn()
	return err == nil && rc.Read(func(fd uintptr) bool { return Ended(int(fd), 0) }) == nil
}

// Ended reports whether the process of a pidfd has ended. It waits at most timeout milliseconds.
func Ended(pidfd, timeout int) bool {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, timeout)
		if err == syscall.EINTR {
			continue
		}
		return err != nil || n > 0
	}
}

// Reap collects the status of a process that has ended, if it was our child. Its first call uses
// the pidfd and does not collect. Only if that shows a child of ours is the pid safe: then no other
// process can have it.
func Reap(pidfd *os.File, pid int) (status string) {
	rc, err := pidfd.SyscallConn()
	if err != nil {
		return ""
	}
	_ = rc.Control(func(fd uintptr) {
		err = unix.Waitid(unix.P_PIDFD, int(fd), nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	})
	var ws unix.WaitStatus
	if err != nil {
		return ""
	}
	if _, err := unix.Wait4(pid, &ws, 0, nil); err != nil {
		return ""
	}
	if ws.Signaled() {
		return "signal: " + ws.Signal().String()
	}
	return "exit status " + strconv.Itoa(ws.ExitStatus())
}
