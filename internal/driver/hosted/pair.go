//go:build linux

package hosted

import (
	"os"

	"golang.org/x/sys/unix"
)

// Sizes of a link of sockets. A frame is lost if it does not fit into the free part of the socket's
// buffer, so frames must be small compared with the buffer.
const (
	PairBuffer  = 8 << 20 // bytes wanted, each direction
	BigMTU      = 65520
	bigBuffer   = 4 << 20 // from this size on big frames are worth it
	smallBuffer = 1 << 20
	midMTU      = 16000
	smallMTU    = 1500
)

// NewPair makes the two ends of a link, sockets that carry one Ethernet frame per message. mtu is the
// largest packet that their buffers are good for.
func NewPair() (host, inside *os.File, mtu int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, 0, os.NewSyscallError("socketpair", err)
	}
	size := growBuffers(fds[0])
	size = min(size, growBuffers(fds[1]))
	return os.NewFile(uintptr(fds[0]), "link"), os.NewFile(uintptr(fds[1]), "link"), pairMTU(size), nil
}

// pairMTU chooses the frame size for a buffer.
func pairMTU(buffer int) int {
	switch {
	case buffer >= bigBuffer:
		return BigMTU
	case buffer >= smallBuffer:
		return midMTU
	}
	return smallMTU
}

// growBuffers makes the socket's buffers as big as this process may. It returns the size that the
// kernel counts, which is twice the requested size.
func growBuffers(fd int) int {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, PairBuffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, PairBuffer)
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, PairBuffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, PairBuffer)
	}
	// Only the sender's buffer counts between local sockets.
	size, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err != nil {
		return 0
	}
	return size
}
