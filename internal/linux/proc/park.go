//go:build linux

package proc

import (
	"os"

	"golang.org/x/sys/unix"
)

// Park lets the kernel close a file at the end of this process, in one of the kernel's own threads.
// To take a network device or a namespace down takes 5 to 20 ms, and nobody waits for that then.
// The caller keeps its descriptor.
//
// Park sends the file to a socket, and that socket to itself, and never receives them. When the
// process ends, only that message holds the socket. The kernel's collector of such rings then frees
// both in the background (since Linux 6.10; before, the ending process does it and waits).
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
