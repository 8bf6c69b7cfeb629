package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel"
)

// Destinations checks a list of destinations, as a ceiling has one. Error: Invalid, with the field.
func Destinations(field string, list []string) error {
	for i, s := range list {
		if _, hint, err := parseDestination(s); err != nil {
			return &carrel.Error{Op: "set ceiling", Kind: carrel.Invalid, Field: fmt.Sprintf("%s[%d]", field, i), Err: err, Hint: hint}
		}
	}
	return nil
}

// Asked is a destination that a network opens, and the field that opens it.
type Asked struct{ Field, Destination string }

// Opened lists the destinations that a valid network may open: those that it allows or asks a
// person about, and the hosts of its proxy. Denials are not looked at, but for E2B's denial of everything, without which E2B's
// clients can't allow names.
func Opened(n carrel.Network) []Asked {
	var out []Asked
	add := func(field, dest string) { out = append(out, Asked{field, dest}) }
	if p := n.Policy; p != nil {
		addRules := func(at string, rules []carrel.Rule) {
			for i, r := range rules {
				for j, d := range r.Allow {
					add(fmt.Sprintf("%s[%d].allow[%d]", at, i, j), d)
				}
				for j, d := range r.Ask {
					add(fmt.Sprintf("%s[%d].ask[%d]", at, i, j), d)
				}
			}
		}
		addRules("policy.rules", p.Rules)
		for i, name := range p.Presets {
			preset, _ := findPreset(name)
			for _, r := range preset.Rules {
				for _, d := range slices.Concat(r.Allow, r.Ask) {
					add(fmt.Sprintf("policy.presets[%d]", i), d)
				}
			}
		}
		if p.Default == "allow" {
			add("policy.default", "*")
		}
	} else {
		for i, s := range n.AllowOut {
			host, _ := splitE2B(s)
			if d, ok := blockE2B(s); ok && d.any {
				host = "*"
			}
			add("allowOut["+strconv.Itoa(i)+"]", host)
		}
		closed := slices.ContainsFunc(n.DenyOut, func(s string) bool { d, ok := blockE2B(s); return ok && d.any })
		if n.Internet && !closed {
			add("internet", "*")
		}
	}
	if n.EgressProxy != nil {
		host := n.EgressProxy.Address
		if i := strings.LastIndexByte(host, ':'); i >= 0 {
			host = strings.Trim(host[:i], "[]")
		}
		add("egressProxy.address", host)
	}
	return out
}

// Within reports whether all of a destination is in one of a list. Texts that are no destinations
// are in none.
func Within(dest string, list []string) bool {
	d, ok := lenient(dest)
	if !ok {
		return false
	}
	return slices.ContainsFunc(list, func(s string) bool {
		c, ok := lenient(s)
		return ok && c.holds(d)
	})
}

// lenient reads a destination, also a block as E2B writes it.
func lenient(s string) (destination, bool) {
	if d, _, err := parseDestination(s); err == nil {
		return d, true
	}
	return blockE2B(s)
}

// holds reports whether a destination contains all of another.
func (d destination) holds(o destination) bool {
	switch {
	case d.any:
		return true
	case o.any:
		return false
	case d.name != "":
		return o.name == d.name
	case d.suffix != "":
		below := "." + d.suffix
		return o.name != "" && strings.HasSuffix(o.name, below) ||
			o.suffix != "" && (o.suffix == d.suffix || strings.HasSuffix(o.suffix, below))
	case !o.prefix.IsValid() || o.prefix.Addr().Is6() != d.prefix.Addr().Is6() || o.prefix.Bits() < d.prefix.Bits():
		return false
	}
	return netip.PrefixFrom(o.prefix.Addr(), d.prefix.Bits()).Masked() == d.prefix.Masked()
}

// SecretsOf lists the secrets that a network puts into requests, and the fields that name them.
func SecretsOf(n carrel.Network) []Asked {
	var out []Asked
	inText := func(field, text string) {
		for {
			_, rest, ok := strings.Cut(text, "${")
			if !ok {
				return
			}
			ref, after, _ := strings.Cut(rest, "}")
			for _, r := range references {
				if name, ok := strings.CutPrefix(ref, r.prefix); ok && !r.token {
					out = append(out, Asked{field, name})
				}
			}
			text = after
		}
	}
	if n.Policy != nil {
		for i, in := range n.Policy.Inject {
			at := fmt.Sprintf("policy.inject[%d]", i)
			if in.Bearer != "" {
				out = append(out, Asked{at + ".bearer", in.Bearer})
			}
			if in.Basic != nil {
				out = append(out, Asked{at + ".basic.secret", in.Basic.Secret})
				inText(at+".basic.user", in.Basic.User)
			}
			for _, texts := range []map[string]string{in.Headers, in.Query} {
				for _, text := range texts {
					inText(at, text)
				}
			}
		}
	}
	for host, rules := range n.Rules {
		for _, r := range rules {
			if r.Transform == nil {
				continue
			}
			for _, text := range r.Transform.Headers {
				inText("rules."+host[:min(len(host), maxNameLen)], text)
			}
		}
	}
	return out
}
