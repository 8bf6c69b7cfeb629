package policy

import (
	"net/netip"
	"slices"

	"github.com/carrel-dev/carrel"
)

// protocol is the protocol of a rule.
type protocol uint8

const (
	anyProtocol protocol = iota
	onlyTCP
	onlyUDP
	onlyHTTP
	onlyHTTPS
)

// ports is a closed range.
type ports struct{ from, to uint16 }

// rule is one compiled rule. Its destinations are in the index.
type rule struct {
	label    string // "rule 2 (github)"
	pos      int32
	limits   int // Verdict.Index
	allow    bool
	ask      string // of a rule that allows after a person said yes: Verdict.Ask
	any      bool   // among its destinations is "*"
	names    bool   // among them are names
	host     bool   // it opens services of the host, and is in no index
	protocol protocol
	ports    []ports // none means all
	methods  []string
	paths    []pattern
	inspect  bool
	said     carrel.Rule // as written, for explanations
}

// aboutRequests reports whether the rule needs a request to match.
func (r *rule) aboutRequests() bool { return len(r.methods) > 0 || len(r.paths) > 0 }

// looks reports whether the connections that the rule allows must be opened to inspect them.
func (r *rule) looks() bool { return r.inspect || r.aboutRequests() }

func (r *rule) hasPort(p uint16) bool {
	if len(r.ports) == 0 {
		return true
	}
	return slices.ContainsFunc(r.ports, func(x ports) bool { return x.from <= p && p <= x.to })
}

// lists reports whether a rule itself names a port, alone or in a range.
func (r *rule) lists(p uint16) bool { return len(r.ports) > 0 && r.hasPort(p) }

// hit is a rule that names a flow's destination, and how it does.
type hit struct {
	pos     int32
	addr    bool   // it names the address
	carried bool   // it names the IPv4 address inside the address
	said    bool   // it names the protocol's own name
	got     string // the first of the flow's names that it names
}

// index finds the rules that name a flow's destination without a scan of all rules.
type index struct {
	exact  map[string][]int32 // names
	suffix map[string][]int32 // "example.com" of "*.example.com"
	blocks []blocksOf
	any    []int32 // the rules with "*", in order
	all    []int32 // rules that allow all of IPv4 or IPv6
}

// blocksOf holds the blocks of one prefix length and address family.
type blocksOf struct {
	bits  int
	six   bool
	rules map[netip.Prefix][]int32
}

func (x *index) add(pos int32, d destination) {
	switch {
	case d.any:
		x.any = appendOnce(x.any, pos)
	case d.name != "":
		x.exact = addTo(x.exact, d.name, pos)
	case d.suffix != "":
		x.suffix = addTo(x.suffix, d.suffix, pos)
	default:
		i := slices.IndexFunc(x.blocks, func(b blocksOf) bool {
			return b.bits == d.prefix.Bits() && b.six == d.prefix.Addr().Is6()
		})
		if i < 0 {
			x.blocks = append(x.blocks, blocksOf{bits: d.prefix.Bits(), six: d.prefix.Addr().Is6()})
			i = len(x.blocks) - 1
		}
		x.blocks[i].rules = addTo(x.blocks[i].rules, d.prefix, pos)
	}
}

func addTo[K comparable](m map[K][]int32, k K, pos int32) map[K][]int32 {
	if m == nil {
		m = map[K][]int32{}
	}
	m[k] = appendOnce(m[k], pos)
	return m
}

// appendOnce appends a position, unless it is the last one already. Positions come in order.
func appendOnce(list []int32, pos int32) []int32 {
	if len(list) > 0 && list[len(list)-1] == pos {
		return list
	}
	return append(list, pos)
}

// eachBlock calls fn with the rules that name a block around this address.
func (x *index) eachBlock(a netip.Addr, fn func([]int32)) {
	for i := range x.blocks {
		b := &x.blocks[i]
		if b.six != a.Is6() {
			continue
		}
		if p, err := a.Prefix(b.bits); err == nil {
			if list := b.rules[p]; list != nil {
				fn(list)
			}
		}
	}
}

// eachName calls fn with the rules that name this name. It must be canonical and plain.
func (x *index) eachName(name string, fn func([]int32)) {
	if list := x.exact[name]; list != nil {
		fn(list)
	}
	if len(x.suffix) == 0 {
		return
	}
	for i := range len(name) {
		if name[i] == '.' {
			if list := x.suffix[name[i+1:]]; list != nil {
				fn(list)
			}
		}
	}
}

// hits collects the rules that name a flow's destination, in order. Rules for "*" are not among
// them. buf is memory for the result.
func (p *Policy) hits(buf []hit, f *known) []hit {
	sorted := true
	add := func(list []int32, h hit) {
		for _, pos := range list {
			h.pos = pos
			sorted = sorted && (len(buf) == 0 || buf[len(buf)-1].pos < pos)
			buf = append(buf, h)
		}
	}
	if f.addr.IsValid() {
		p.index.eachBlock(f.addr, func(l []int32) { add(l, hit{addr: true}) })
		if inner := carried(f.addr); inner.IsValid() {
			p.index.eachBlock(inner, func(l []int32) { add(l, hit{carried: true}) })
		}
	}
	for _, n := range f.names {
		if n, plain := canonical(n); plain {
			p.index.eachName(n, func(l []int32) { add(l, hit{got: n}) })
		}
	}
	if f.name != "" && f.plain {
		p.index.eachName(f.name, func(l []int32) { add(l, hit{said: true}) })
	}
	if sorted {
		return buf
	}
	return merge(buf)
}

// merge sorts hits and joins those of the same rule.
func merge(list []hit) []hit {
	slices.SortStableFunc(list, func(a, b hit) int { return int(a.pos) - int(b.pos) })
	out := list[:1]
	for _, h := range list[1:] {
		last := &out[len(out)-1]
		if last.pos != h.pos {
			out = append(out, h)
			continue
		}
		last.addr, last.carried, last.said = last.addr || h.addr, last.carried || h.carried, last.said || h.said
		if last.got == "" {
			last.got = h.got
		}
	}
	return out
}
