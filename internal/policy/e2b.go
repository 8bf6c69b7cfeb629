package policy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel"
)

// compileE2B puts E2B's fields into rules, with E2B's precedence: allowOut, then
// denyOut, then the plain switch. Blocking all of IPv4 means everything, IPv6 and
// names too. Private addresses stay closed even if they are named.
func compileE2B(n carrel.Network) (*Policy, *fault) {
	p := &Policy{e2b: true}
	var allow, deny []destination
	for i, s := range n.DenyOut {
		d, ok := blockE2B(s)
		if !ok {
			return nil, faultf(fmt.Sprintf("denyOut[%d]", i), "", "invalid denied CIDR %s", bare(s))
		}
		deny = append(deny, d)
	}
	named := false
	for i, s := range n.AllowOut {
		d, ok := blockE2B(s)
		if !ok {
			var err error
			if d, _, err = parseDestination(s); err != nil || d.prefix.IsValid() {
				return nil, faultf(fmt.Sprintf("allowOut[%d]", i), "", "invalid allowed address %s", bare(s))
			}
			named = true
		}
		allow = append(allow, d)
	}
	everything := func(d destination) bool { return d.any }
	if named && !slices.ContainsFunc(deny, everything) {
		return nil, faultf("denyOut", "", "When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in deny out to block all other traffic.")
	}
	p.addE2B("allowOut", true, allow)
	p.addE2B("denyOut", false, deny)
	if n.Internet {
		p.setFallback(true, "internet: true")
	} else {
		p.setFallback(false, "internet: false")
	}
	if err := p.addTransforms(n.Rules); err != nil {
		return nil, err
	}
	p.finish()
	return p, nil
}

func (p *Policy) addE2B(label string, allow bool, dests []destination) {
	if len(dests) == 0 {
		return
	}
	p.rules = append(p.rules, rule{label: label, allow: allow, pos: int32(len(p.rules)), limits: -1})
	p.enter(dests)
}

// blockE2B reads an address or a CIDR, as leniently as E2B does. All of IPv4 or of
// IPv6 is everything. 0.0.0.0 and :: alone are no address of anybody.
func blockE2B(s string) (destination, bool) {
	if pre, err := netip.ParsePrefix(s); err == nil {
		if pre.Bits() == 0 {
			return destination{any: true}, true
		}
		if a := pre.Addr(); a.Is4In6() {
			if pre.Bits() < 96 {
				return destination{}, false
			}
			pre = netip.PrefixFrom(a.Unmap(), pre.Bits()-96)
		}
		return destination{prefix: pre.Masked()}, true
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" || a.IsUnspecified() {
		return destination{}, false
	}
	a = plainAddr(a)
	return destination{prefix: netip.PrefixFrom(a, a.BitLen())}, true
}

// addTransforms makes injections of E2B's rules. Of one host the headers of all rules
// are put in, the last of the same name; rules of different hosts are not merged.
func (p *Policy) addTransforms(rules map[string][]carrel.NetworkRule) *fault {
	seen := map[destination]string{}
	for _, host := range slices.Sorted(maps.Keys(rules)) {
		at := "rules." + host[:min(len(host), maxNameLen)]
		d, err := injectionHost(at, host)
		if err != nil {
			return err
		}
		if other, there := seen[d]; there {
			return faultf(at, "", "%s and %s are the same host", clip(other), clip(host))
		}
		seen[d] = host
		headers := map[string]string{}
		for _, r := range rules[host] {
			if r.Transform == nil {
				continue
			}
			for _, name := range slices.Sorted(maps.Keys(r.Transform.Headers)) {
				if err := checkHeader(at, name, r.Transform.Headers[name]); err != nil {
					return err
				}
				for have := range headers {
					if strings.EqualFold(have, name) {
						delete(headers, have)
					}
				}
				headers[name] = r.Transform.Headers[name]
			}
		}
		if len(headers) > 0 {
			p.inject.add(injection{Injection: carrel.Injection{Host: d.hostText(), Headers: headers}}, d)
		}
	}
	return nil
}
