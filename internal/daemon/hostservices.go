package daemon

import (
	"net"
	"net/netip"
	"sync"

	"github.com/carrel-dev/carrel/internal/access"
	"github.com/carrel-dev/carrel/internal/config"
)

// ownPorts are the ports of the daemon's own doors. No sandbox reaches them, whatever its policy
// says. It is safe for concurrent use.
type ownPorts struct {
	mu  sync.Mutex
	set map[uint16]bool
}

// add adds a door's port. An address that is not TCP has none.
func (o *ownPorts) add(addr string) {
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		return
	}
	port, err := net.LookupPort("tcp", text)
	if err != nil || port == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.set == nil {
		o.set = map[uint16]bool{}
	}
	o.set[uint16(port)] = true
}

// has reports whether a port belongs to a door.
func (o *ownPorts) has(port uint16) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.set[port]
}

// hostServices says whose sandboxes may reach services of this machine. A daemon that other
// machines can reach allows nobody, unless its setting says so.
func hostServices(mode string, listening net.Addr) access.HostServices {
	switch mode {
	case config.HostServicesAll:
		return access.HostAll
	case config.HostServicesOwn:
		return access.HostAdmins
	case "":
		if a, err := netip.ParseAddrPort(listening.String()); err == nil && a.Addr().Unmap().IsLoopback() {
			return access.HostAdmins
		}
	}
	return access.HostNobody
}
