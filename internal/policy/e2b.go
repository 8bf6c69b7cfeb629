package policy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel"
)

// compileE2B converts E2B's fields to rules, with E2B's precedence: allowOut, then denyOut, then
// the plain switch. To block all of IPv4 means to block everything, including IPv6 and names.
// Private addresses stay closed even if they are named.
func compileE2B(n carrel.Network) (*Policy, *fault) {
	p := &Policy{e2b: true}
	var deny []destination
	allow := map[uint16][]destination{} // by port, 0 for all
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
		port := uint16(0)
		if !ok {
			var err error
			var host string
			host, port = splitE2B(s)
			if d, _, err = parseDestination(host); err != nil || d.prefix.IsValid() || d.any && port > 0 {
				return nil, faultf(fmt.Sprintf("allowOut[%d]", i), "", "invalid allowed address %s", bare(s))
			}
			if d.name == HostName {
				return nil, faultf(fmt.Sprintf("allowOut[%d]", i), "it needs a rule of Carrel's own form (network.policy)", "%s can't be opened here", HostName)
			}
			named = true
		}
		allow[port] = append(allow[port], d)
	}
	everything := func(d destination) bool { return d.any }
	if named && !slices.ContainsFunc(deny, everything) {
		return nil, faultf("denyOut", "", "When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in deny out to block all other traffic.")
	}
	for _, port := range slices.Sorted(maps.Keys(allow)) {
		p.addE2B("allowOut", true, port, allow[port])
	}
	p.addE2B("denyOut", false, 0, deny)
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

// addE2B adds a rule for one port. Port 0 means all ports.
func (p *Policy) addE2B(label string, allow bool, port uint16, dests []destination) {
	if len(dests) == 0 {
		return
	}
	r := rule{label: label, allow: allow, pos: int32(len(p.rules)), limits: -1}
	if port > 0 {
		r.ports = []ports{{port, port}}
	}
	p.rules = append(p.rules, r)
	p.enter(dests)
}

// splitE2B splits a domain that may have a port. getHost of E2B's SDKs returns one if the daemon's
// own domain has a port. Port 0 means that there is none: the whole text is the domain, or no
// domain at all.
func splitE2B(s string) (host string, port uint16) {
	host, text, ok := strings.Cut(s, ":")
	if !ok || host == "" {
		return s, 0
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return s, 0
	}
	port, err := parsePort(text)
	if err != nil {
		return s, 0
	}
	return host, port
}

// blockE2B reads an address or a CIDR, as leniently as E2B does. All of IPv4 or all of IPv6 means
// everything. 0.0.0.0 and :: alone are not accepted as addresses.
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

// addTransforms makes injections from E2B's rules. For one host, the headers of all rules are used,
// and the last value of a name wins. Rules of different hosts are not merged. A host with a port
// differs from the same host without one.
func (p *Policy) addTransforms(rules map[string][]carrel.NetworkRule) *fault {
	type place struct {
		destination
		port uint16
	}
	seen := map[place]string{}
	for _, host := range slices.Sorted(maps.Keys(rules)) {
		at := "rules." + host[:min(len(host), maxNameLen)]
		name, port := splitE2B(host)
		d, err := injectionHost(at, name)
		if err != nil {
			return err
		}
		if other, there := seen[place{d, port}]; there {
			return faultf(at, "", "%s and %s are the same host", clip(other), clip(host))
		}
		seen[place{d, port}] = host
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
			text := d.hostText()
			if port > 0 {
				text += ":" + strconv.Itoa(int(port))
			}
			p.inject.add(injection{Injection: carrel.Injection{Host: text, Headers: headers}, port: port}, d)
		}
	}
	return nil
}
