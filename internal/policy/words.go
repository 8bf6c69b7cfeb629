package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel"
)

// Describe lists what a network allows, as [Policy.Words] does.
func Describe(n carrel.Network) []string {
	p, err := Compile(n)
	if err != nil {
		return []string{"nothing is allowed: " + err.Error()}
	}
	out := p.Words()
	if n.EgressProxy != nil {
		out = append(out, "TCP goes through the SOCKS5 proxy "+n.EgressProxy.Address)
	}
	return out
}

// Words describes a policy, one rule on each line, in the order of judging.
func (p *Policy) Words() []string {
	dests := p.destinations()
	out := make([]string, 0, len(p.rules)+len(p.inject.list)+2)
	for i := range p.rules {
		r := &p.rules[i]
		verb := "deny"
		switch {
		case r.ask != "":
			verb = "ask a person about"
		case r.allow:
			verb = "allow"
		}
		out = append(out, fmt.Sprintf("%s: %s %s%s", r.label, verb, strings.Join(dests[i], ", "), r.conditions()))
	}
	switch {
	case p.fallback.allow:
		out = append(out, p.fallback.label+": everything else is allowed, but for this host, link-local and private addresses")
	case p.fallback.label == "":
		out = append(out, defaultDeny+": nothing is allowed")
	case len(out) == 0:
		out = append(out, p.fallback.label+": nothing is allowed")
	default:
		out = append(out, p.fallback.label+": everything else is denied")
	}
	for i := range p.inject.list {
		out = append(out, injectionWords(&p.inject.list[i].Injection))
	}
	if text := limitWords(p.total); text != "" {
		out = append(out, "in all: "+text)
	}
	return out
}

// destinations lists the destinations of each rule.
func (p *Policy) destinations() [][]string {
	out := make([][]string, len(p.rules))
	add := func(list []int32, text string) {
		for _, pos := range list {
			out[pos] = append(out[pos], text)
		}
	}
	add(p.index.any, "everything")
	for _, h := range p.host {
		out[h.rule] = []string{"the services of this host"}
	}
	for _, name := range slices.Sorted(maps.Keys(p.index.exact)) {
		add(p.index.exact[name], name)
	}
	for _, name := range slices.Sorted(maps.Keys(p.index.suffix)) {
		add(p.index.suffix[name], "*."+name)
	}
	for _, b := range p.index.blocks {
		for block, list := range b.rules {
			text := block.String()
			if block.IsSingleIP() {
				text = block.Addr().String()
			}
			add(list, text)
		}
	}
	for i := range out {
		slices.Sort(out[i])
	}
	return out
}

// conditions lists the other conditions of a rule.
func (r *rule) conditions() string {
	var b strings.Builder
	switch {
	case r.host:
		b.WriteString(" on its loopback")
	case r.protocol != anyProtocol:
		b.WriteString(" over " + r.protocolText())
	case r.aboutRequests(), r.names && r.allow && !r.any:
		b.WriteString(" over TLS or HTTP")
	}
	if len(r.ports) > 0 {
		b.WriteString(", port " + portList(r.ports))
	}
	if len(r.methods) > 0 {
		b.WriteString(", " + strings.Join(r.methods, " "))
	}
	if len(r.said.Paths) > 0 {
		b.WriteString(" on " + strings.Join(r.said.Paths, " "))
	}
	if r.allow && r.looks() && r.protocol != onlyHTTP {
		b.WriteString(" (TLS is opened)")
	}
	if text := limitWords(r.said.Limits); text != "" {
		b.WriteString("; at most " + text)
	}
	return b.String()
}

func limitWords(l carrel.TrafficLimits) string {
	var out []string
	add := func(n float64, what string) {
		if n > 0 {
			out = append(out, fmt.Sprintf("%v %s", n, what))
		}
	}
	add(float64(l.Connections), "connections at once")
	add(l.ConnectionsPerSecond, "new connections per second")
	add(l.RequestsPerSecond, "requests per second")
	if l.SendBytesPerSecond > 0 {
		out = append(out, fmt.Sprintf("%d bytes per second out", l.SendBytesPerSecond))
	}
	if l.ReceiveBytesPerSecond > 0 {
		out = append(out, fmt.Sprintf("%d bytes per second in", l.ReceiveBytesPerSecond))
	}
	return strings.Join(out, ", ")
}

// injectionWords describes an injection. It never contains a literal value.
func injectionWords(in *carrel.Injection) string {
	var what []string
	if in.Bearer != "" {
		what = append(what, "bearer "+in.Bearer)
	}
	if in.Basic != nil {
		what = append(what, "basic "+in.Basic.User+" with "+in.Basic.Secret)
	}
	for _, h := range slices.Sorted(maps.Keys(in.Headers)) {
		what = append(what, "header "+h)
	}
	for _, q := range slices.Sorted(maps.Keys(in.Query)) {
		what = append(what, "parameter "+q)
	}
	text := "inject into " + in.Host + ": " + strings.Join(what, ", ")
	if len(in.Methods) > 0 {
		text += ", for " + strings.Join(in.Methods, " ")
	}
	if len(in.Paths) > 0 {
		text += " on " + strings.Join(in.Paths, " ")
	}
	if in.Cleartext {
		text += ", also without TLS"
	}
	return text
}
