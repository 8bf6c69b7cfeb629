package policy

import (
	"fmt"
	"net/netip"
	"slices"
)

// opening is a private block that a rule allows by its address.
type opening struct {
	prefix netip.Prefix
	rule   *rule
}

// judgeAddr judges an address by its class, before any rule. It returns false and a refusal for an
// address that is out of reach. name is the name that it was looked up for, or "".
func (p *Policy) judgeAddr(f *known, a netip.Addr, name string) (Verdict, bool) {
	c, what := classify(a)
	if c == open || c == private && p.namesPrivate(f, a) {
		return Verdict{}, true
	}
	thing := a.String()
	if name != "" {
		thing = fmt.Sprintf("%s has the address %s, which", quoted(name), a)
	}
	reason := fmt.Sprintf("%s is %s: no sandbox reaches it", thing, what)
	if c != private || p.e2b {
		hint := ""
		switch {
		case c == private:
			reason = fmt.Sprintf("%s is %s", thing, what)
			hint = "private addresses need rules of Carrel's own form (network.policy)"
		case (what == thisHost || what == linkEnd) && f.stage != atUDP:
			hint = HostHint(f.Port)
		}
		return builtIn(blockName(what), reason, hint), false
	}
	hint := fmt.Sprintf("ask for: allow %s, ports %d", a, f.Port)
	return builtIn(blockName(what), fmt.Sprintf("%s is %s, and no rule names it for port %d", thing, what, f.Port), hint), false
}

// blockName is the name of a reserved block in a verdict.
func blockName(what string) string {
	switch what {
	case "private", "link-local", "multicast", "reserved":
		return what + " address"
	}
	return what
}

// namesPrivate reports whether a rule allows a private address by naming it for this port.
func (p *Policy) namesPrivate(f *known, a netip.Addr) bool {
	for _, o := range p.openings {
		if !o.prefix.Contains(a) || !o.rule.hasPort(f.Port) {
			continue
		}
		if f.stage == atUDP {
			if o.rule.protocol == onlyUDP || o.rule.protocol == anyProtocol && !o.rule.aboutRequests() {
				return true
			}
		} else if o.rule.protocol != onlyUDP {
			return true
		}
	}
	return false
}

// Reaches reports whether an address can be allowed at all: it is public, or private and named by a
// rule. The rules may still deny a certain flow to it.
func (p *Policy) Reaches(a netip.Addr) bool {
	a = plainAddr(a)
	c, _ := classify(a)
	return c == open || c == private && slices.ContainsFunc(p.openings, func(o opening) bool { return o.prefix.Contains(a) })
}

// Nameable reports whether a connection that Judge refuses at its start may be allowed later, when
// it says a name that has this address. Programs go on with addresses that they had before the wire
// could remember their names. This applies only at ports where a name is expected. At other ports,
// a port scan would see completed handshakes, and the later reset would tell it too little.
func (p *Policy) Nameable(f Flow) bool {
	k := makeKnown(&f)
	if k.stage != atStart {
		return false
	}
	usual := f.Port == 80 || f.Port == 443 || slices.Contains(p.httpsPorts, f.Port)
	if _, ok := p.judgeBuiltIn(&k); !ok {
		return false
	}
	found := p.find(&k)
	for _, pos := range p.nameRules {
		r := &p.rules[pos]
		if pos > found.rule.pos {
			return false
		}
		if how, _ := matchProtocol(r, &k); r.allow && r.protocol != onlyTCP && how != no && (usual && r.hasPort(f.Port) || r.lists(f.Port)) {
			return true
		}
	}
	return false
}

// JudgeTarget judges the address that the host found for the name of a flow that Judge allowed. The
// address must not be out of reach, nor denied by a rule before the one that allows the name.
func (p *Policy) JudgeTarget(f Flow, to netip.Addr) Verdict {
	name := f.Name
	if name == "" && len(f.Names) > 0 {
		name = f.Names[0]
	}
	f.Addr = to
	k := makeKnown(&f)
	if v, ok := p.judgeAddr(&k, k.addr, name); !ok {
		return v
	}
	if !to.IsValid() {
		return builtIn("no address", quoted(name)+" has no address", "")
	}
	v := p.Judge(f)
	if v.Inspect {
		v.Allow = true
	}
	return v
}

// JudgeName judges a question for a name: can any connection to it be allowed? A question is itself
// a message to the outside. So a rule that allows addresses opens no names, but a rule that allows
// every destination does.
func (p *Policy) JudgeName(name string) Verdict {
	name, plain := canonical(name)
	if name == HostName {
		return p.judgeHostName()
	}
	k := known{Flow: &Flow{}, name: name, plain: plain}
	var room [16]hit
	named, rest := p.hits(room[:0], &k), p.index.any
	all := p.index.all
	for len(named)+len(rest)+len(all) > 0 {
		pos := firstOf(named, rest, all)
		if len(named) > 0 && named[0].pos == pos {
			named = named[1:]
		}
		rest, all = after(rest, pos), after(all, pos)
		r := &p.rules[pos]
		if r.allow {
			return Verdict{Allow: true, Rule: r.label, Index: -1}
		}
		if len(r.ports) == 0 && r.protocol == anyProtocol && !r.aboutRequests() {
			return Verdict{Rule: r.label, Index: -1, Reason: fmt.Sprintf("the name %s is denied by %s", quoted(name), r.label),
				Hint: "ask for: a change of " + r.label}
		}
	}
	if p.fallback.allow {
		return Verdict{Allow: true, Rule: p.fallback.label, Index: -1}
	}
	label, ask := p.fallback.label, "allow"
	if label == "" {
		label = defaultDeny
	}
	if p.e2b {
		ask = "allowOut"
	}
	v := Verdict{Rule: label, Index: -1, Reason: fmt.Sprintf("the name %s is not allowed: no rule names it", quoted(name))}
	switch {
	case slices.Contains(othersHostNames, name) && !p.e2b:
		v.Hint = HostHint(0)
	case plain:
		v.Hint = fmt.Sprintf("ask for: %s %s", ask, name)
	}
	return v
}

// firstOf returns the smallest first position of the lists.
func firstOf(named []hit, lists ...[]int32) int32 {
	first := int32(-1)
	if len(named) > 0 {
		first = named[0].pos
	}
	for _, l := range lists {
		if len(l) > 0 && (first < 0 || l[0] < first) {
			first = l[0]
		}
	}
	return first
}

// after removes a position from the beginning of a list.
func after(list []int32, pos int32) []int32 {
	if len(list) > 0 && list[0] == pos {
		return list[1:]
	}
	return list
}
