package wire

import (
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
)

// Policy is a [carrel.Network] made ready to judge addresses. It is immutable.
//
// An address that is out of reach for every sandbox (see [Reserved]) is denied
// whatever the lists say. Otherwise AllowOut beats DenyOut, as in E2B, and the
// plain switch decides the rest. Entries that are not addresses or prefixes
// never match: names need the policy engine, and until then they allow nothing.
type Policy struct {
	internet    bool
	allow, deny []netip.Prefix
}

// NewPolicy makes a Policy.
func NewPolicy(n carrel.Network) *Policy {
	return &Policy{internet: n.Internet, allow: prefixes(n.AllowOut), deny: prefixes(n.DenyOut)}
}

func prefixes(list []string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		if p, err := netip.ParsePrefix(strings.TrimSpace(s)); err == nil {
			out = append(out, p.Masked())
		} else if a, err := netip.ParseAddr(strings.TrimSpace(s)); err == nil {
			a = a.Unmap()
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return out
}

// Allows reports whether a sandbox may reach an address.
func (p *Policy) Allows(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	switch {
	case Reserved(a):
		return false
	case contains(p.allow, a):
		return true
	case contains(p.deny, a):
		return false
	}
	return p.internet
}

// Names reports whether names are resolved: a question is itself a message to the
// outside, so a sandbox that may not leave gets no answer.
func (p *Policy) Names() bool {
	if !p.internet {
		return false
	}
	for _, d := range p.deny {
		if d.Bits() == 0 && d.Addr().Is4() {
			return false
		}
	}
	return true
}

func contains(list []netip.Prefix, a netip.Addr) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// reserved is what no sandbox reaches: addresses that mean this host, its network,
// or nothing that a client can connect to.
var reserved = prefixes([]string{
	"0.0.0.0/8",        // this network: Linux takes 0.0.0.0 for loopback
	"10.0.0.0/8",       // private
	"100.64.0.0/10",    // carrier-grade NAT; holds a cloud's metadata (100.100.100.200)
	"127.0.0.0/8",      // loopback
	"168.63.129.16/32", // a cloud's metadata on a public address
	"169.254.0.0/16",   // link-local; cloud metadata
	"172.16.0.0/12",    // private
	"192.0.0.0/24",     // protocol assignments; holds a cloud's metadata (192.0.0.192)
	"192.168.0.0/16",   // private
	"198.18.0.0/15",    // benchmarks
	"224.0.0.0/4",      // multicast
	"240.0.0.0/4",      // reserved, broadcast
	"::/96",            // unspecified, loopback, IPv4-compatible
	"64:ff9b:1::/48",   // local NAT64
	"100::/64",         // discard
	"fc00::/7",         // unique local
	"fe80::/10",        // link-local
	"fec0::/10",        // site-local
	"ff00::/8",         // multicast
	"2001::/32",        // Teredo, which wraps IPv4
	"::ffff:0:0:0/96",  // IPv4-translated
})

var (
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
	sixTo = netip.MustParsePrefix("2002::/16")
)

// Reserved reports whether an address is out of reach for every sandbox. An IPv6
// address that carries an IPv4 one is judged by what it carries too.
func Reserved(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if !a.IsValid() || contains(reserved, a) {
		return true
	}
	if a.Is6() {
		b := a.As16()
		switch {
		case nat64.Contains(a):
			return Reserved(netip.AddrFrom4([4]byte(b[12:16])))
		case sixTo.Contains(a):
			return Reserved(netip.AddrFrom4([4]byte(b[2:6])))
		}
	}
	return false
}

// hostAddrs knows this host's own addresses, which may be public ones. They are
// read anew every few seconds: interfaces come and go.
type hostAddrs struct {
	mu   sync.Mutex
	read time.Time
	set  map[netip.Addr]struct{}
}

const hostAddrsAge = 5 * time.Second

// has reports whether a is an address of this host. When the host's addresses
// can't be read every address counts as one: better no way out than the wrong one.
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
