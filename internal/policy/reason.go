package policy

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

const defaultDeny = "default: deny"

// builtIn makes a refusal that no rule can change.
func builtIn(what, reason, hint string) Verdict {
	return Verdict{Rule: "built-in: " + what, Index: -1, Reason: reason, Hint: hint}
}

// quoted quotes a name from a sandbox for a message.
func quoted(s string) string {
	if s == "" {
		return "no name"
	}
	if _, plain := canonical(s); plain {
		return s
	}
	return clip(s)
}

// deny makes the verdict for a flow that the rules refuse.
func (p *Policy) deny(f *known, d *finding) Verdict {
	v := Verdict{Rule: d.rule.label, Index: -1}
	if d.miss == missAmbiguous {
		v.Rule = d.missed.label
		v.Reason = fmt.Sprintf("the path of %s is refused: %v, and %s judges paths", describe(f), errAmbiguous, d.missed.label)
		v.Hint = "send the path in its plain form: no //, no . or .. segments, no ; \\ or encoded separators"
		return v
	}
	if v.Rule == "" {
		v.Rule = defaultDeny
	}
	if d.rule != &p.fallback && d.rule.label != "" {
		v.Reason = fmt.Sprintf("%s is denied by %s", describe(f), d.rule.label)
		v.Hint = "ask for: a change of " + d.rule.label
		return v
	}
	v.Reason = describe(f) + " is not allowed: " + p.because(f, d)
	v.Hint = p.ask(f, d)
	return v
}

// because gives the reason why no rule allows a flow.
func (p *Policy) because(f *known, d *finding) string {
	if d.missed == nil {
		return "no rule names it"
	}
	label := d.missed.label
	switch d.miss {
	case missPort:
		return fmt.Sprintf("%s is for port %s", label, portList(d.missed.ports))
	case missProtocol:
		return fmt.Sprintf("%s is for %s", label, d.missed.protocolText())
	case missQUIC:
		return label + " allows names over TCP only, as TLS or HTTP"
	case missSilent:
		return label + " allows names as TLS or HTTP only, and this says no name"
	case missNoName:
		return label + " allows names, and the TLS hello says none"
	case missNotGot:
		name := f.name
		if name == "" {
			name = "a name of the rule"
		}
		return fmt.Sprintf("the address was not got from the resolver for %s, which %s allows", quoted(name), label)
	case missMethod:
		return fmt.Sprintf("%s is for %s", label, strings.Join(d.missed.methods, ", "))
	case missPath:
		return label + " is for other paths"
	}
	return "no rule names it"
}

// ask says what to ask for, or what to do instead.
func (p *Policy) ask(f *known, d *finding) string {
	switch d.miss {
	case missQUIC:
		return "use TCP: clients that try QUIC fall back to it by themselves"
	case missNotGot:
		if f.name != "" {
			return "connect by name, and let the sandbox's own resolver look it up"
		}
	case missNoName:
		return "connect by name, so that the client sends it (SNI)"
	}
	what := ""
	switch {
	case f.name != "" && f.plain && !isAddr(f.name):
		what = f.name
	case len(f.names) > 0:
		what = f.names[0]
	case f.addr.IsValid():
		what = f.addr.String()
	default:
		return ""
	}
	if p.e2b {
		return "ask for: allowOut " + what
	}
	extra := ""
	if d.miss == missPort {
		extra = ", ports " + strconv.Itoa(int(f.Port))
	}
	switch {
	case f.stage == atUDP && !isAddr(what):
		extra += ", protocol udp"
	case f.stage == atOther && !isAddr(what):
		extra += ", protocol tcp"
	case d.miss == missMethod:
		extra += ", methods " + f.Method
	case d.miss == missPath:
		extra += ", paths " + clip(f.Path)
	}
	return "ask for: allow " + what + extra
}

// describe names a flow for a message: "tcp 203.0.113.9:443".
func describe(f *known) string {
	if f.stage == atRequest {
		scheme := "http"
		if f.Opened {
			scheme = "https"
		}
		path, _, _ := strings.Cut(f.Path, "?")
		if len(path) > 200 {
			path = path[:200] + "…"
		}
		if strings.ContainsFunc(path, func(c rune) bool { return c <= ' ' || c > '~' }) {
			path = clip(path)
		}
		return fmt.Sprintf("%s %s://%s%s", method(f.Method), scheme, hostOf(f), path)
	}
	kind := "tcp"
	switch f.stage {
	case atUDP:
		kind = "udp"
	case atTLS:
		kind = "TLS"
	case atHTTP:
		kind = "HTTP"
	}
	host := hostOf(f)
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	text := fmt.Sprintf("%s %s:%d", kind, host, f.Port)
	if f.addr.IsValid() && host != f.addr.String() && !f.addr.Is6() {
		text += " (" + f.addr.String() + ")"
	}
	return text
}

// hostOf is the best name for the other end of a flow.
func hostOf(f *known) string {
	switch {
	case f.name != "":
		return quoted(f.name)
	case len(f.names) > 0:
		return quoted(f.names[0])
	case f.addr.IsValid():
		return f.addr.String()
	}
	return "no name"
}

// method shortens a request's method for a message.
func method(m string) string {
	if len(m) <= 20 && checkToken(m) == nil {
		return m
	}
	return clip(m)
}

func isAddr(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

// protocolText names the protocol of a rule.
func (r *rule) protocolText() string {
	switch r.protocol {
	case onlyTCP:
		return "TCP"
	case onlyUDP:
		return "UDP"
	case onlyHTTP:
		return "HTTP without TLS"
	case onlyHTTPS:
		return "TLS"
	}
	return "HTTP"
}

func portList(list []ports) string {
	var out []string
	for _, p := range list {
		if p.from == p.to {
			out = append(out, strconv.Itoa(int(p.from)))
		} else {
			out = append(out, fmt.Sprintf("%d-%d", p.from, p.to))
		}
	}
	return strings.Join(out, ", ")
}

// hidden refuses a hello that hides its name, where a rule needs the name.
func (p *Policy) hidden(f *known, r *rule) Verdict {
	hint := "turn Encrypted Client Hello off in the client"
	if !p.e2b {
		hint += ", or ask for: ech: allow"
	}
	return Verdict{Rule: r.label, Index: -1,
		Reason: fmt.Sprintf("%s is not allowed: its TLS hello hides another name (ECH), and %s goes by names", describe(f), r.label),
		Hint:   hint}
}

// unseen refuses probable QUIC where TLS over TCP would be inspected.
func unseen(f *known, d *finding) Verdict {
	r := d.rule
	if d.mayDeny != nil {
		r = d.mayDeny
	}
	return Verdict{Rule: r.label, Index: -1,
		Reason: fmt.Sprintf("%s is not allowed: QUIC can't be seen into, and names or requests are judged here", describe(f)),
		Hint:   "use TCP: clients that try QUIC fall back to it by themselves"}
}
