//go:build linux

package guard

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// maxAddress is the size of the largest socket address, in bytes.
const maxAddress = 128

// family returns the address family of a socket address; -1 if it has none.
func family(addr []byte) int {
	if len(addr) < 2 {
		return -1
	}
	return int(binary.NativeEndian.Uint16(addr))
}

// pathname returns the path in a Unix socket's address. It returns false for abstract and unnamed
// ones.
func pathname(addr []byte) (string, bool) {
	if family(addr) != unix.AF_UNIX || len(addr) < 3 || addr[2] == 0 {
		return "", false
	}
	name := addr[2:min(len(addr), 2+108)]
	if i := bytes.IndexByte(name, 0); i >= 0 {
		name = name[:i]
	}
	return string(name), true
}

// internet returns the address of an IP socket.
func internet(addr []byte) (netip.AddrPort, bool) {
	switch f := family(addr); {
	case f == unix.AF_INET && len(addr) >= 8:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(addr[4:8])), binary.BigEndian.Uint16(addr[2:])), true
	case f == unix.AF_INET6 && len(addr) >= 24:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(addr[8:24])).Unmap(), binary.BigEndian.Uint16(addr[2:])), true
	}
	return netip.AddrPort{}, false
}

// unixAddress returns the socket address of a path.
func unixAddress(name string) []byte {
	addr := binary.NativeEndian.AppendUint16(nil, unix.AF_UNIX)
	return append(append(addr, name...), 0)
}
