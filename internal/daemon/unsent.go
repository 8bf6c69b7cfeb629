package daemon

import (
	"net"

	"golang.org/x/sys/unix"
)

// unsentBytes bounds what the kernel keeps for a client that does not read. Without a bound it
// keeps 4 MiB of each connection, and thousands may be open. Bytes that are under way to a client
// do not count, so clients far away are as fast as before.
const unsentBytes = 512 << 10

// boundUnsent sets that bound for a connection. A kernel that does not know it goes without.
func boundUnsent(c net.Conn) {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentBytes)
	})
}
