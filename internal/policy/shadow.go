package policy

import (
	"net/netip"
	"slices"

	"github.com/carrel-dev/carrel"
)

// checkReached refuses the last rule if an earlier one matches everything that it would match. Then
// the last rule never decides, or its conditions have no effect. A rule that only repeats an
// earlier one is accepted, because lists are put together from parts.
func (p *Policy) checkReached(at string, dests []destination) *fault {
	last := &p.rules[len(p.rules)-1]
	var able []int32 // earlier rules that match every destination so far
	for i, d := range dests {
		var these []int32
		p.index.eachCovering(d, func(list []int32) {
			for _, pos := range list {
				if pos < last.pos && (i > 0 && slices.Contains(able, pos) || i == 0 && covers(&p.rules[pos], last)) {
					these = append(these, pos)
				}
			}
		})
		if able = these; len(able) == 0 {
			return nil
		}
	}
	first := &p.rules[slices.Min(able)]
	if first.allow == last.allow && (first.ask == "") == (last.ask == "") && !last.looks() && last.said.Limits == (carrel.TrafficLimits{}) {
		return nil
	}
	verb := "denies"
	switch {
	case first.ask != "":
		verb = "asks about"
	case first.allow:
		verb = "allows"
	}
	return faultf(at, "put it before "+first.label+", or leave it out", "%s can never match: %s before it %s the same", last.label, first.label, verb)
}

// eachCovering calls fn with the rules that have a destination which contains all of d.
func (x *index) eachCovering(d destination, fn func([]int32)) {
	if len(x.any) > 0 {
		fn(x.any)
	}
	switch {
	case d.any:
	case d.name != "":
		x.eachName(d.name, fn)
	case d.suffix != "":
		x.eachName("*."+d.suffix, fn)
	default:
		for _, b := range x.blocks {
			if b.six != d.prefix.Addr().Is6() || b.bits > d.prefix.Bits() {
				continue
			}
			if list := b.rules[netip.PrefixFrom(d.prefix.Addr(), b.bits).Masked()]; list != nil {
				fn(list)
			}
		}
	}
}

// covers reports whether first's conditions hold wherever last's do, for destinations that both
// name.
func covers(first, last *rule) bool {
	if len(first.ports) > 0 {
		if len(last.ports) == 0 {
			return false
		}
		for _, p := range last.ports {
			if !slices.ContainsFunc(first.ports, func(q ports) bool { return q.from <= p.from && p.to <= q.to }) {
				return false
			}
		}
	}
	within := func(all, some []string) bool {
		return len(all) == 0 || len(some) > 0 && !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
	}
	return coversProtocol(first, last) && within(first.methods, last.methods) && within(first.said.Paths, last.said.Paths)
}

// coversProtocol is covers for protocols alone. A rule that allows names without a protocol allows
// HTTP and TLS. A later rule that denies a name without a protocol counts as covered by it. In fact
// it would deny the name's other protocols too, but nobody means that.
func coversProtocol(first, last *rule) bool {
	named := last.names && !last.any
	switch first.protocol {
	case anyProtocol:
		if first.any || !first.allow || !first.names {
			return true
		}
		return last.protocol != onlyUDP && last.protocol != onlyTCP
	case onlyTCP:
		return last.protocol == onlyTCP || last.protocol == onlyHTTP || last.protocol == onlyHTTPS ||
			last.protocol == anyProtocol && (last.aboutRequests() || named && last.allow)
	}
	return first.protocol == last.protocol
}
