package policy

import "net/netip"

// class says who may reach an address.
type class uint8

const (
	open    class = iota // all sandboxes that the rules let
	private              // only if a rule names it as an address
	never                // no sandbox, under any rules
)

// reserved is a block of addresses that rules do not open automatically.
type reserved struct {
	prefix netip.Prefix
	class  class
	what   string
}

// Names of the blocks that mean this host itself.
const (
	thisHost = "this host"
	linkEnd  = "this host's end of the link"
)

// The blocks, with the more specific ones first. They are addresses of this host or its network,
// and addresses that no client can connect to.
var (
	reserved4 = []reserved{
		block("10.73.0.0/30", never, linkEnd),
		{netip.PrefixFrom(HostAddr, 32), never, "the word for this host's services"},
		block("100.100.100.200/32", never, "a cloud's metadata service"),
		block("168.63.129.16/32", never, "a cloud's metadata service"),
		block("0.0.0.0/8", never, thisHost), // Linux takes 0.0.0.0 for loopback
		block("127.0.0.0/8", never, thisHost),
		block("169.254.0.0/16", never, "link-local"), // most clouds' metadata
		block("192.0.0.0/24", never, "for protocols"),
		block("224.0.0.0/4", never, "multicast"),
		block("240.0.0.0/4", never, "reserved"), // and broadcast
		block("10.0.0.0/8", private, "private"),
		block("172.16.0.0/12", private, "private"),
		block("192.168.0.0/16", private, "private"),
		block("100.64.0.0/10", private, "private"), // shared by carriers and overlay networks
		block("198.18.0.0/15", private, "for measurements"),
	}
	reserved6 = []reserved{
		block("fd73:6361:7272::/64", never, linkEnd),
		block("fd00:ec2::/32", never, "a cloud's metadata service"),
		block("fd20:ce::/32", never, "a cloud's metadata service"),
		block("::/96", never, thisHost), // unspecified, loopback, IPv4-compatible
		block("::ffff:0:0:0/96", never, "an IPv4 address in disguise"),
		block("64:ff9b:1::/48", never, "an IPv4 address in disguise"),
		block("2001::/32", never, "an IPv4 address in disguise"), // Teredo
		block("100::/64", never, "a black hole"),
		block("fe80::/10", never, "link-local"),
		block("fec0::/10", never, "link-local"), // site-local of old
		block("ff00::/8", never, "multicast"),
		block("fc00::/7", private, "private"),
	}
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
	sixTo = netip.MustParsePrefix("2002::/16")
)

func block(prefix string, c class, what string) reserved {
	return reserved{netip.MustParsePrefix(prefix), c, what}
}

// plainAddr returns an address in the form for judging: without a zone, and IPv4 as IPv4.
func plainAddr(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// carried returns the IPv4 address inside an IPv6 address, which a gateway or tunnel on the way
// would use. It is not valid if there is none.
func carried(a netip.Addr) netip.Addr {
	if !a.Is6() {
		return netip.Addr{}
	}
	b := a.As16()
	switch {
	case nat64.Contains(a), isatap(b):
		return netip.AddrFrom4([4]byte(b[12:16]))
	case sixTo.Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return netip.Addr{}
}

// isatap reports whether an address is an ISATAP address of RFC 5214: any prefix, then 5efe.
func isatap(b [16]byte) bool {
	return b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}

// classify returns the class of an address, and its name. a must be plain. An IPv6 address that
// carries an IPv4 address which is not open is itself out of reach. No rule can name the IPv4
// address that way.
func classify(a netip.Addr) (class, string) {
	if !a.IsValid() {
		return never, "no address"
	}
	table := reserved4
	if a.Is6() {
		table = reserved6
	}
	for i := range table {
		if table[i].prefix.Contains(a) {
			return table[i].class, table[i].what
		}
	}
	if inner := carried(a); inner.IsValid() {
		if c, what := classify(inner); c != open {
			return never, what
		}
	}
	return open, ""
}

// Reserved reports whether an address is out of reach for a sandbox whose rules don't name it. Such
// addresses are this host's, link-local, private, or a cloud's metadata service. An IPv6 address
// that carries an IPv4 one is judged by that one too.
func Reserved(a netip.Addr) bool {
	c, _ := classify(plainAddr(a))
	return c != open
}

// NotPublic says what an address is if it is not one of the internet; "" if it is one.
func NotPublic(a netip.Addr) string {
	a = plainAddr(a)
	switch {
	case a.IsLoopback(), a.IsUnspecified():
		return "of this machine"
	case a.IsLinkLocalUnicast():
		return "link-local, where clouds have their metadata services"
	case a.IsPrivate():
		return "private"
	case Reserved(a):
		return "not of the internet"
	}
	return ""
}

// classOf returns the class of a whole block. It is open unless every address of the block is in
// one reserved block.
func classOf(p netip.Prefix) (class, string) {
	table := reserved4
	if p.Addr().Is6() {
		table = reserved6
	}
	for _, r := range table {
		if r.prefix.Bits() <= p.Bits() && r.prefix.Contains(p.Addr()) {
			return r.class, r.what
		}
	}
	if p.Addr().Is6() && p.IsSingleIP() {
		return classify(p.Addr())
	}
	return open, ""
}
