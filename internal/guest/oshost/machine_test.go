package oshost

import (
	"encoding/binary"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// socketID is an ID in the form of sock_diag.
func socketID(from, to *net.TCPAddr) []byte {
	id := make([]byte, diagSocket)
	binary.BigEndian.PutUint16(id, uint16(from.Port))
	binary.BigEndian.PutUint16(id[2:], uint16(to.Port))
	put := func(at int, ip net.IP) {
		if v4 := ip.To4(); v4 != nil {
			ip = v4
		}
		copy(id[at:], ip)
	}
	put(4, from.IP)
	put(20, to.IP)
	return id
}

// TestOwnConnection finds the one connection that is not ended.
func TestOwnConnection(t *testing.T) {
	addr := func(ip string, port int) *net.TCPAddr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: port} }
	for _, c := range []struct {
		family byte
		a, b   string
	}{{unix.AF_INET, "10.0.0.2", "10.0.0.1"}, {unix.AF_INET6, "fd00::2", "fd00::1"}} {
		local, remote := addr(c.a, 49983), addr(c.b, 5000)
		if !ours(socketID(local, remote), c.family, local, remote) {
			t.Errorf("%v to %v is another", local, remote)
		}
		for _, other := range [][2]*net.TCPAddr{{local, addr(c.b, 5001)}, {addr(c.a, 1), remote}, {remote, local}} {
			if ours(socketID(other[0], other[1]), c.family, local, remote) {
				t.Errorf("%v is the same", other)
			}
		}
		if ours(socketID(local, remote), c.family, nil, remote) {
			t.Error("a connection without a local end is the same")
		}
	}
}

// FuzzAnswers reads messages of netlink that are none.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, unix.NLMSG_HDRLEN))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = answers(b, func([]byte) {}) })
}
