//go:build linux

package box

import (
	"os"

	"golang.org/x/sys/unix"
)

// network brings the box's own loopback up, and its link.
func (b *builder) network() error {
	switch b.Spec.Network {
	case Closed:
		return loopback()
	}
	return nil
}

// loopback brings lo up, which gives it its addresses.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return os.NewSyscallError("lo up", unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req))
}
