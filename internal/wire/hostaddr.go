package wire

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// hostAddrs knows this host's own addresses, which may be public ones. It reads them again every
// few seconds, because interfaces come and go.
type hostAddrs struct {
	mu   sync.Mutex
	read time.Time
	set  map[netip.Addr]struct{}
}

const hostAddrsAge = 5 * time.Second

// has reports whether a is an address of this host. When the host's addresses can't be read, every
// address counts as one. Then nothing gets out, which is safer than reaching the host.
func (h *hostAddrs) has(a netip.Addr) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.set == nil || time.Since(h.read) > hostAddrsAge {
		list, err := net.InterfaceAddrs()
		if err != nil {
			return true
		}
		h.set, h.read = make(map[netip.Addr]struct{}, len(list)), time.Now()
		for _, l := range list {
			if p, err := netip.ParsePrefix(l.String()); err == nil {
				h.set[p.Addr().Unmap().WithZone("")] = struct{}{}
			}
		}
	}
	_, own := h.set[a.Unmap().WithZone("")]
	return own
}
