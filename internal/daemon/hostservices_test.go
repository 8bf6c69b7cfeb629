package daemon

import (
	"net"
	"testing"

	"github.com/carrel-dev/carrel/internal/access"
)

// TestHostServices shows that a daemon that other machines can reach opens nothing of its host,
// unless its setting says so.
func TestHostServices(t *testing.T) {
	local, six, all := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7070}, &net.TCPAddr{IP: net.IPv6loopback, Port: 1}, &net.TCPAddr{IP: net.IPv4zero, Port: 7070}
	for _, c := range []struct {
		mode string
		at   net.Addr
		want access.HostServices
	}{
		{"", local, access.HostAdmins}, {"", six, access.HostAdmins}, {"", all, access.HostNobody}, {"", &net.UnixAddr{Name: "/run/x"}, access.HostNobody},
		{"none", local, access.HostNobody}, {"own", all, access.HostAdmins}, {"all", all, access.HostAll}, {"nonsense", local, access.HostNobody},
	} {
		if got := hostServices(c.mode, c.at); got != c.want {
			t.Errorf("%q at %v: %v, want %v", c.mode, c.at, got, c.want)
		}
	}
	var own ownPorts
	for _, addr := range []string{"127.0.0.1:7070", "[::1]:2222", ":80", "127.0.0.1:0", "", "nonsense"} {
		own.add(addr)
	}
	for port, want := range map[uint16]bool{7070: true, 2222: true, 80: true, 0: false, 81: false} {
		if own.has(port) != want {
			t.Errorf("port %d: %v", port, own.has(port))
		}
	}
}
