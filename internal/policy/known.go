package policy

import (
	"net/netip"
	"slices"
)

// stage says how much of a flow is known.
type stage uint8

const (
	atStart   stage = iota // TCP, nobody has looked
	atUDP                  // nothing more will be known
	atTLS                  // the hello is read
	atHTTP                 // it is HTTP, and requests will follow
	atRequest              // one request of it
	atOther                // neither, or silence
)

// known is a flow in the form for matching.
type known struct {
	*Flow
	addr  netip.Addr // plain
	names []string
	name  string // the protocol's own name, canonical
	plain bool   // name may be taken apart
	stage stage
	got   bool // the address was got for name
}

func makeKnown(f *Flow) known {
	k := known{Flow: f, names: f.Names}
	if f.Addr.IsValid() {
		k.addr = plainAddr(f.Addr)
	}
	switch {
	case f.UDP:
		k.stage = atUDP
	case f.App == AppTLS:
		k.stage = atTLS
	case f.App == AppHTTP && f.Method == "":
		k.stage = atHTTP
	case f.App == AppHTTP:
		k.stage = atRequest
	case f.App == AppOther:
		k.stage = atOther
	}
	if f.Name != "" && (k.stage == atTLS || k.stage == atHTTP || k.stage == atRequest) {
		k.name, k.plain = canonical(f.Name)
		k.got = k.plain && slices.ContainsFunc(f.Names, func(n string) bool {
			n, plain := canonical(n)
			return plain && n == k.name
		})
	}
	return k
}

// isQUIC reports whether a session is probably QUIC. It carries the same as TLS and HTTP over TCP,
// but can't be inspected.
func (f *known) isQUIC() bool { return f.stage == atUDP && f.Port == 443 }

// agrees reports whether a request's host is the host that TLS was opened for. Without a server
// name, this host is the address.
func (f *known) agrees() bool {
	if f.ServerName != "" {
		want, _ := canonical(f.ServerName)
		return want == f.name
	}
	host := f.Name
	if n := len(host); n > 2 && host[0] == '[' && host[n-1] == ']' {
		host = host[1 : n-1]
	}
	a, err := netip.ParseAddr(host)
	return err == nil && f.addr.IsValid() && plainAddr(a) == f.addr
}
