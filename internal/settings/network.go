package settings

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

// Destination reads [PROTOCOL://]HOST[:PORTS] into a rule with the given name.
func Destination(name, text string, deny bool) (carrel.Rule, error) {
	r := carrel.Rule{Name: name + " " + text}
	if len(r.Name) > 200 {
		r.Name = name
	}
	protocol, host, ok := strings.Cut(text, "://")
	if !ok {
		protocol, host = "", text
	}
	host, ports := splitPorts(host)
	if host == "" {
		return r, fmt.Errorf("%s names no destination", show(text))
	}
	r.Protocol = protocol
	if ports != "" {
		r.Ports = []string{ports}
	}
	if deny {
		r.Deny = []string{host}
	} else {
		r.Allow = []string{host}
	}
	return r, policy.Check(carrel.Policy{Rules: []carrel.Rule{r}})
}

// splitPorts splits the ports off a destination. IPv6 addresses need brackets only with ports.
func splitPorts(host string) (string, string) {
	if inner, rest, ok := strings.Cut(strings.TrimPrefix(host, "["), "]"); ok && strings.HasPrefix(host, "[") {
		return inner, strings.TrimPrefix(rest, ":")
	}
	if strings.Count(host, ":") == 1 {
		h, p, _ := strings.Cut(host, ":")
		return h, p
	}
	return host, ""
}

// checkNetwork refuses impossible destinations and ports, and a destination that is both allowed
// and denied.
func checkNetwork(name string, n NetworkRules) error {
	for _, list := range []struct {
		key  string
		dest []string
		deny bool
	}{{"network.allow", n.Allow, false}, {"network.deny", n.Deny, true}} {
		for i, d := range list.dest {
			at := fmt.Sprintf("%s: %s[%d]", name, list.key, i)
			if _, err := Destination(list.key, d, list.deny); err != nil {
				return within(at, err)
			}
			if j := slices.Index(n.Allow, d); list.deny && j >= 0 {
				return invalid(at, "take one of them away", "%s is in network.allow[%d] too", show(d), j)
			}
		}
	}
	for i, p := range n.Publish {
		if _, err := ParsePublish(p); err != nil {
			return invalid(fmt.Sprintf("%s: network.publish[%d]", name, i), "write [ADDRESS:]PORT[:INSIDE]", "%w", err)
		}
	}
	return nil
}

// Publish is a port of a box that can be reached from outside.
type Publish struct {
	Address netip.Addr // on this machine
	Outside uint16     // 0 picks one
	Inside  uint16
}

// ParsePublish reads [ADDRESS:]PORT[:INSIDE]. The default address is this machine's loopback.
func ParsePublish(text string) (Publish, error) {
	p := Publish{Address: netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	rest := text
	inner, after, v6 := strings.Cut(strings.TrimPrefix(text, "["), "]:")
	if v6 = v6 && strings.HasPrefix(text, "["); !v6 {
		inner, after, _ = strings.Cut(text, ":")
	}
	if v6 || strings.Contains(inner, ".") {
		var err error
		if p.Address, err = netip.ParseAddr(inner); err != nil {
			return Publish{}, fmt.Errorf("%s: %s is no address", show(text), show(inner))
		}
		rest = after
	}
	outside, inside, two := strings.Cut(rest, ":")
	for _, port := range []struct {
		text string
		to   *uint16
	}{{outside, &p.Outside}, {inside, &p.Inside}} {
		if !two && port.to == &p.Inside {
			p.Inside = p.Outside
		} else if n, err := strconv.ParseUint(port.text, 10, 16); err != nil && port.text == text {
			return Publish{}, fmt.Errorf("%s is no port", show(text))
		} else if err != nil {
			return Publish{}, fmt.Errorf("%s: %s is no port", show(text), show(port.text))
		} else {
			*port.to = uint16(n)
		}
	}
	if p.Inside == 0 {
		return Publish{}, fmt.Errorf("%s: 0 is no port of the box", show(text))
	}
	return p, nil
}

// network adds up the rules of all layers for outgoing traffic.
func (v *resolver) network() error {
	b := v.box
	var deny, allow []carrel.Rule
	var base carrel.Policy
	for _, l := range v.layers {
		n := l.Settings.Network
		if n.Allow != nil && len(n.Allow) == 0 {
			allow, base = nil, carrel.Policy{} // "none" closes what weaker layers opened
		}
		if n.Policy != nil {
			base = *n.Policy
		} else if n.PolicyRef != "" {
			p, err := v.loadPolicy(l, n.PolicyRef)
			if err != nil {
				return err
			}
			if l.profile { // profiles add up
				for _, name := range p.Presets {
					if !slices.Contains(base.Presets, name) {
						base.Presets = append(base.Presets, name)
					}
				}
			} else {
				base = p
			}
		}
		for _, d := range []struct {
			key  string
			list []string
			deny bool
			into *[]carrel.Rule
		}{{"network.deny", n.Deny, true, &deny}, {"network.allow", n.Allow, false, &allow}} {
			for i, text := range d.list {
				r, err := Destination(l.at(d.key, i), text, d.deny)
				if err != nil {
					return within(l.at(d.key, i), err)
				}
				if l.srt != nil && l.srt.reasons[text] != "" && len(l.srt.reasons[text]) <= 200 {
					r.Name = l.srt.reasons[text]
				}
				*d.into = append(*d.into, r)
			}
		}
		if l.srt == nil || n.Bind != nil && *n.Bind || v.OS == "darwin" { // srt on Linux always allows the box's own ports
			put(&b.Bind, n.Bind)
			b.Bind = b.Bind && (l.srt == nil || n.Bind != nil)
		}
		b.Host = b.Host || n.Host
		b.Publish = append(b.Publish, n.Publish...)
		v.sockets(l)
	}
	if b.Host {
		if len(deny) > 0 || len(allow) > 0 {
			v.note("!the box has this machine's own network, so destinations that are allowed or denied do not count")
		}
		return nil
	}
	b.Policy = base
	b.Policy.Rules = slices.Concat(deny, allow, base.Rules)
	if len(allow) == 0 && !opens(base) {
		b.Closed, b.Policy = true, carrel.Policy{}
		return nil
	}
	return v.checkPolicy()
}

// opens reports whether a policy lets anything out.
func opens(p carrel.Policy) bool {
	return p.Default == "allow" || len(p.Presets) > 0 || slices.ContainsFunc(p.Rules, func(r carrel.Rule) bool { return len(r.Allow) > 0 })
}

// checkPolicy leaves out rules of weaker layers that can't have an effect after stronger ones.
func (v *resolver) checkPolicy() error {
	b := v.box
	if policy.Check(b.Policy) == nil {
		return nil
	}
	rules := b.Policy.Rules
	b.Policy.Rules = nil
	for _, r := range rules {
		before := b.Policy.Rules
		b.Policy.Rules = append(slices.Clip(before), r)
		if err := policy.Check(carrel.Policy{Rules: b.Policy.Rules}); err != nil {
			b.Policy.Rules = before
			v.note("%s was left out: %v", show(r.Name), err)
		}
	}
	if err := policy.Check(b.Policy); err != nil {
		return within("network", err)
	}
	return nil
}

// loadPolicy reads a policy by its name. A file's path is relative to the layer's directory.
func (v *resolver) loadPolicy(l *layer, ref string) (carrel.Policy, error) {
	if strings.ContainsAny(ref, "./") {
		if rest, ok := strings.CutPrefix(ref, "~/"); ok {
			ref = filepath.Join(v.home, rest)
		} else if !filepath.IsAbs(ref) {
			ref = filepath.Join(l.Dir, ref)
		}
	}
	p, err := policy.Load(ref)
	if err != nil {
		return p, within(l.at("network.policy", 0), err)
	}
	return p, nil
}

// sockets adds Unix sockets that programs may connect to. It also makes them readable.
func (v *resolver) sockets(l *layer) {
	for i, s := range l.Settings.Network.Sockets {
		if s != "*" {
			if t, err := v.target(l, s, false); err == nil && t.path != "" {
				s = v.real(t.path)
			}
			if !v.exists(s) {
				v.note("%s: %s does not exist", l.at("network.sockets", i), v.short(s))
			}
		}
		if !slices.Contains(v.box.Sockets, s) {
			v.box.Sockets = append(v.box.Sockets, s)
		}
	}
}
