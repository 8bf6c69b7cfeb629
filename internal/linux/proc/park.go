//go:build linux

package proc

import (
	"os"

	"golang.org/x/sys/unix"
)

// Park leaves a file to the kernel: at the end of this process it is closed by one of the kernel's
// own threads, so that nobody waits until what it stands for is taken down (a network device, a
// namespace: 5 to 20 ms). The caller keeps its descriptor.
//
// The file is sent to a socket that is sent to itself, and is never received. When the process
// closes the socket, by its end, only that message holds it, and the kernel's collector of such
// rings frees both, in the background (Linux 6.10; before, in the process, which then waits as
// ever).
func Park(fd int) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	err = unix.Sendmsg(pair[0], []byte{0}, unix.UnixRights(fd, pair[1]), nil, unix.MSG_NOSIGNAL)
	_ = unix.Close(pair[0])
	if err != nil {
		_ = unix.Close(pair[1])
		return os.NewSyscallError("sendmsg", err)
	}
	return nil // pair[1] stays open
}
