package policy

import "fmt"

// finding is the result of the rules for a flow.
type finding struct {
	rule *rule // the first that certainly matches
	hit  hit
	// These rules stand before rule, and may allow or deny the flow when more is known.
	mayAllow, mayDeny *rule
	look              bool // a rule that may allow needs inspection
	// The rule that came nearest to a match, for the reason.
	miss   miss
	missed *rule
}

// find goes through the rules that name a flow's destination, in order.
func (p *Policy) find(f *known) finding {
	var room [16]hit
	named, rest := p.hits(room[:0], f), p.index.any
	var out finding
	for len(named)+len(rest) > 0 {
		h := hit{}
		switch {
		case len(rest) == 0 || len(named) > 0 && named[0].pos < rest[0]:
			h, named = named[0], named[1:]
		case len(named) > 0 && named[0].pos == rest[0]:
			h, named, rest = named[0], named[1:], rest[1:]
		default:
			h.pos, rest = rest[0], rest[1:]
		}
		r := &p.rules[h.pos]
		m, why := matchRule(r, h, f)
		switch {
		case why == missAmbiguous:
			// Whether this rule matches is not known, so no later rule may decide.
			out.rule, out.hit, out.miss, out.missed = &ambiguous, h, why, r
			return out
		case m == yes:
			out.rule, out.hit = r, h
			p.findUnsaid(&out, f)
			return out
		case m == maybe && r.allow:
			out.look = out.look || r.looks() || r.limits >= 0 || r.ask != ""
			if out.mayAllow == nil {
				out.mayAllow = r
			}
		case m == maybe:
			out.mayDeny = r
		case r.allow && why > out.miss:
			out.miss, out.missed = why, r
		case !r.allow && f.isQUIC() && r.aboutRequests() && (r.any || h != hit{pos: h.pos}):
			out.mayDeny = r
		}
	}
	out.rule = &p.fallback
	p.findUnsaid(&out, f)
	return out
}

// findUnsaid looks for a deny rule about names that stands before the deciding rule. The flow may
// still say such a name, even if its address was not got for it.
func (p *Policy) findUnsaid(out *finding, f *known) {
	quic := f.isQUIC()
	if f.stage != atStart && f.stage != atHTTP && !quic || !out.rule.allow && out.mayAllow == nil || out.mayDeny != nil {
		return
	}
	for _, pos := range p.denyNames {
		r := &p.rules[pos]
		if pos >= out.rule.pos {
			return
		}
		if !r.hasPort(f.Port) {
			continue
		}
		how, _ := matchProtocol(r, f)
		if quic && r.protocol != anyProtocol && r.protocol != onlyHTTPS || !quic && how == no {
			continue
		}
		out.mayDeny = r
		return
	}
}

// hides returns the rule that needs the name hidden in an encrypted hello. It is the first rule
// about names, up to the deciding one.
func (p *Policy) hides(decided *rule, f *known) *rule {
	if !f.ECH || f.stage != atTLS || p.allowECH {
		return nil
	}
	if decided.ask != "" {
		return decided // a person is told the name
	}
	for _, pos := range p.nameRules {
		r := &p.rules[pos]
		if pos > decided.pos {
			return nil
		}
		if how, _ := matchProtocol(r, f); how != no && r.hasPort(f.Port) && r.protocol != onlyTCP {
			return r
		}
	}
	return nil
}

// ambiguous denies requests whose path can't be judged.
var ambiguous = rule{limits: -1}

// Judge judges a connection, session or request by the facts known so far.
func (p *Policy) Judge(f Flow) Verdict {
	k := makeKnown(&f)
	if k.toHost() {
		return p.judgeHost(&k)
	}
	if v, ok := p.judgeBuiltIn(&k); !ok {
		return v
	}
	found := p.find(&k)
	if !found.rule.allow && found.mayAllow == nil {
		return p.deny(&k, &found)
	}
	if r := p.hides(found.rule, &k); r != nil {
		return p.hidden(&k, r)
	}
	if k.stage == atUDP && found.rule.ask != "" {
		return unheld(&k, found.rule)
	}
	inject := p.wouldInject(&k, &found)
	if k.isQUIC() && found.rule.protocol != onlyUDP && (found.mayDeny != nil || found.rule.inspect || inject) {
		return unseen(&k, &found)
	}
	switch k.stage {
	case atStart:
		if found.look || found.asksByName() || found.mayDeny != nil || !found.rule.allow || found.rule.inspect || inject {
			return Verdict{Inspect: true, Rule: found.openRule().label, Index: -1}
		}
		return found.allow(&k)
	case atTLS:
		v := found.allow(&k)
		v.Terminate = found.mayAllow != nil || found.mayDeny != nil || found.rule.inspect || inject
		return v.undecided(v.Terminate)
	case atHTTP:
		v := found.allow(&k)
		v.Requests = found.mayAllow != nil || found.mayDeny != nil || found.rule.inspect || inject || v.ByName != "" || f.Opened ||
			v.Ask != "" // the person is told the request's host
		return v.undecided(v.Requests)
	case atRequest:
		v := found.allow(&k)
		if inject {
			v.Inject, v.ByName = p.injectionFor(&k), k.name
		}
		return v
	}
	return found.allow(&k)
}

// judgeBuiltIn makes the checks that no rule can change.
func (p *Policy) judgeBuiltIn(f *known) (Verdict, bool) {
	if f.Addr.IsValid() {
		if v, ok := p.judgeAddr(f, f.addr, ""); !ok {
			return v, false
		}
	}
	if f.stage != atRequest {
		return Verdict{}, true
	}
	if f.Method == "CONNECT" {
		return builtIn("CONNECT", "a request may not open a tunnel (CONNECT)", "connect to the host itself: no proxy is needed"), false
	}
	if f.Opened && !f.agrees() {
		return builtIn("host", "the request is for "+quoted(f.Name)+", but TLS was opened for "+quoted(f.ServerName),
			"open a connection of its own for each host"), false
	}
	return Verdict{}, true
}

// openRule is the rule to name in a verdict when more must be known of the flow.
func (d *finding) openRule() *rule {
	switch {
	case d.mayAllow != nil:
		return d.mayAllow
	case d.rule.allow || d.mayDeny == nil:
		return d.rule
	}
	return d.mayDeny
}

// allow makes the verdict for a flow that is allowed, or may be.
func (d *finding) allow(f *known) Verdict {
	r, h := d.rule, d.hit
	if !r.allow {
		r, h = d.mayAllow, hit{}
	}
	v := Verdict{Allow: true, Rule: r.label, Index: r.limits}
	if r.ask != "" {
		v.Allow, v.Ask = false, r.ask
		v.Reason = fmt.Sprintf("%s needs a person's yes (%s)", describe(f), r.label)
	}
	switch {
	case r.ask != "" && f.got:
		v.ByName = f.name // the person is told this name, so it is dialled
	case r.any, h.addr:
	case h.said && f.got:
		v.ByName = f.name
	case h.got != "":
		v.ByName = h.got
	case f.got:
		v.ByName = f.name
	}
	if v.ByName == "" && !f.Addr.IsValid() {
		if v.ByName = f.name; v.ByName == "" && len(f.names) > 0 {
			v.ByName, _ = canonical(f.names[0])
		}
	}
	return v
}
