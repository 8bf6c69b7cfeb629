package policy

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/carrel-dev/carrel"
)

// Policy is a compiled [carrel.Network], ready to judge. It is immutable. The zero value lets
// nothing out.
type Policy struct {
	rules    []rule
	index    index
	fallback rule // for what no rule matches

	denyNames []int32 // rules that deny by name
	nameRules []int32 // rules by name
	openings  []opening
	inject    injections

	host        []hostPort // services of the host that are opened
	hostDenials []int32    // rules that deny the host's name

	httpsPorts []uint16 // ports of the network where TLS is expected

	limits   []carrel.TrafficLimits
	total    carrel.TrafficLimits
	allowECH bool
	e2b      bool // E2B's form
	opens    bool
	silent   bool
	asks     bool
	hold     time.Duration
	proxy    *carrel.EgressProxy
}

// Compile checks all fields of a network and compiles it. The policy keeps nothing of n that the
// caller could change. The caller must bound the number of entries in E2B's fields. Error: Invalid,
// with the field ("policy.rules[2].ports", "allowOut") and the reason.
func Compile(n carrel.Network) (*Policy, error) {
	p, under, err := compileNetwork(n)
	if err == nil {
		err = first(checkProxy(n.EgressProxy), checkMask(n.MaskHost), checkHTTPSPorts(n.HTTPSPorts))
	}
	if err != nil {
		return nil, err.public(under)
	}
	p.httpsPorts = slices.Clone(n.HTTPSPorts)
	if n.EgressProxy != nil {
		proxy := *n.EgressProxy
		p.proxy = &proxy
	}
	return p, nil
}

// compileNetwork compiles the form that a network uses: Carrel's own or E2B's. An error's field is
// relative to under.
func compileNetwork(n carrel.Network) (p *Policy, under string, err *fault) {
	if n.Policy == nil {
		p, err = compileE2B(n)
		return p, "", err
	}
	if n.Internet || len(n.AllowOut) > 0 || len(n.DenyOut) > 0 || len(n.Rules) > 0 {
		return nil, "", faultf("policy", "", "a network has either a policy or E2B's internet, allowOut, denyOut and rules")
	}
	if p, err = compile(*n.Policy); err != nil {
		return nil, "policy", err
	}
	return p, "", nil
}

// Check checks a policy. Error: Invalid, with the field ("policy.rules[2].ports").
func Check(p carrel.Policy) error {
	if _, err := compile(p); err != nil {
		return err.public("policy")
	}
	return nil
}

// Bounds on one policy in Carrel's own form.
const (
	maxRules        = 1000
	maxDestinations = 10_000
	maxInjections   = 1000
	maxList         = 1000 // ports, methods or paths of one rule
	maxText         = 256  // bytes of a rule's name
)

// compile compiles a policy in Carrel's own form.
func compile(src carrel.Policy) (*Policy, *fault) {
	p := &Policy{silent: src.Silent, hold: defaultHold}
	switch src.Default {
	case "", "deny":
		p.setFallback(false, defaultDeny)
	case "allow":
		p.setFallback(true, "default: allow")
	default:
		return nil, faultf("default", "", "%s is neither deny nor allow", clip(src.Default))
	}
	switch src.ECH {
	case "", "deny":
	case "allow":
		p.allowECH = true
	default:
		return nil, faultf("ech", "", "%s is neither deny nor allow", clip(src.ECH))
	}
	switch {
	case src.AskSeconds < 0 || src.AskSeconds > maxAskSeconds:
		return nil, faultf("askSeconds", "", "%d is not between 1 and %d", src.AskSeconds, maxAskSeconds)
	case src.AskSeconds > 0:
		p.hold = time.Duration(src.AskSeconds) * time.Second
	}
	if len(src.Rules) > maxRules {
		return nil, faultf("rules", "", "%d rules, at most %d may be", len(src.Rules), maxRules)
	}
	if err := checkLimits("limits", src.Limits); err != nil {
		return nil, err
	}
	p.total = src.Limits
	left := maxDestinations
	for i, r := range src.Rules {
		label := fmt.Sprintf("rule %d", i+1)
		if r.Name != "" {
			label += " (" + r.Name + ")"
		}
		at := fmt.Sprintf("rules[%d]", i)
		dests, err := p.addRule(at, label, r, &left)
		if err != nil {
			return nil, err
		}
		if len(dests) == 0 {
			continue // for a service of the host, which was checked
		}
		if err := p.checkReached(at, dests); err != nil {
			return nil, err
		}
	}
	if err := p.addPresets(src.Presets, &left); err != nil {
		return nil, err
	}
	if err := p.addInjections(src.Inject); err != nil {
		return nil, err
	}
	p.finish()
	return p, nil
}

func (p *Policy) setFallback(allow bool, label string) {
	p.fallback = rule{label: label, allow: allow, any: true, limits: -1, pos: math.MaxInt32}
}

// addRule checks one rule and adds it. It returns no destinations for a rule that opens services of
// the host.
func (p *Policy) addRule(at, label string, src carrel.Rule, left *int) ([]destination, *fault) {
	r, dests, err := readRule(at, src, left)
	if err != nil {
		return nil, err
	}
	r.label, r.pos, r.limits = label, int32(len(p.rules)), -1
	if src.Limits != (carrel.TrafficLimits{}) {
		r.limits = len(p.limits)
		p.limits = append(p.limits, src.Limits)
	}
	p.asks = p.asks || r.ask != ""
	p.rules = append(p.rules, r)
	if r.host {
		// This rule is in no index, because it can match only one address: the one that stands for
		// the host.
		return nil, p.openHost(at)
	}
	if !r.allow && deniesHost(dests) {
		p.hostDenials = append(p.hostDenials, r.pos)
	}
	p.enter(dests)
	return dests, nil
}

// enter puts the destinations of the last rule into the index.
func (p *Policy) enter(dests []destination) {
	r := &p.rules[len(p.rules)-1]
	for _, d := range dests {
		p.index.add(r.pos, d)
		switch {
		case d.any:
			r.any = true
		case d.name != "" || d.suffix != "":
			r.names = true
		case r.allow && d.prefix.Bits() == 0:
			p.index.all = appendOnce(p.index.all, r.pos)
		}
	}
	if r.names {
		p.nameRules = append(p.nameRules, r.pos)
		if !r.allow {
			p.denyNames = append(p.denyNames, r.pos)
		}
	}
	p.opens = p.opens || r.looks() && r.protocol != onlyHTTP
	if !r.allow || p.e2b {
		return
	}
	for _, d := range dests {
		if d.prefix.IsValid() {
			if c, _ := classOf(d.prefix); c == private {
				copied := *r
				p.openings = append(p.openings, opening{d.prefix, &copied})
			}
		}
	}
}

// finish sets the fields that depend on several parts.
func (p *Policy) finish() { p.opens = p.opens || len(p.inject.list) > 0 }

// Limits returns the rules' limits, by Verdict.Index, and the sandbox's own limits, total.
func (p *Policy) Limits() (rules []carrel.TrafficLimits, total carrel.TrafficLimits) {
	return slices.Clone(p.limits), p.total
}

// Injections returns all injections. A sandbox learns only two things about them: Opens (whether
// TLS is opened) and Env (the variables with placeholders).
func (p *Policy) Injections() []carrel.Injection {
	var out []carrel.Injection
	for _, in := range p.inject.list {
		out = append(out, cloneInjection(in.Injection))
	}
	return out
}

// Opens reports whether TLS to any host may be opened. Then the sandbox must trust the wire's
// authority.
func (p *Policy) Opens() bool { return p.opens }

// Passes reports whether a policy is valid and only lets connections pass or not: nothing is put
// into requests, no TLS is opened and no proxy used. A sandbox with such a one need be told nothing
// before it starts.
func Passes(rules carrel.Policy) bool {
	p, err := Compile(carrel.Network{Policy: &rules})
	return err == nil && !p.opens && !p.asks && p.proxy == nil && len(p.inject.list) == 0
}

// Proxy returns the proxy for all TCP; nil for none.
func (p *Policy) Proxy() *carrel.EgressProxy {
	if p.proxy == nil {
		return nil
	}
	proxy := *p.proxy
	return &proxy
}

// IsSilent reports whether the sandbox gets no messages about refusals.
func (p *Policy) IsSilent() bool { return p.silent }

// Placeholder is the value of an injection's variable when the injection gives no value.
const Placeholder = "carrel-placeholder"

// Env returns the variables that the injections give the sandbox. If two injections give the same
// variable, the first wins.
func (p *Policy) Env() map[string]string {
	var out map[string]string
	for _, in := range p.inject.list {
		if len(in.Env) > 0 && out == nil {
			out = map[string]string{}
		}
		for _, k := range slices.Sorted(maps.Keys(in.Env)) {
			v := in.Env[k]
			if v == "" {
				v = Placeholder
			}
			if _, there := out[k]; !there {
				out[k] = v
			}
		}
	}
	return out
}
