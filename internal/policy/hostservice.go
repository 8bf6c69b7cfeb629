package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel"
)

// A service of the host is a program that listens on the loopback of the machine on which a sandbox
// runs. Only one kind of rule opens it: a rule that allows [HostName] alone, and lists each port.
// Inside, the name has the address [HostAddr]. That address only stands for the host: no packet
// goes there, and no other address leads to the host's loopback.
const HostName = "host.carrel.internal"

// HostAddr is the address of [HostName] inside.
var HostAddr = netip.MustParseAddr("10.73.0.4")

// maxHostPorts bounds the ports of the host that one policy opens.
const maxHostPorts = 64

// hostPort is a port of the host that a rule opens.
type hostPort struct {
	port uint16
	rule int32
}

// OpensHost reports whether a network asks for a service of the host. It needs no valid network.
func OpensHost(n carrel.Network) bool {
	return n.Policy != nil && slices.ContainsFunc(n.Policy.Rules, func(r carrel.Rule) bool {
		return slices.ContainsFunc(r.Allow, isHostName) || slices.ContainsFunc(r.Ask, isHostName)
	})
}

// isHostName reports whether a destination is [HostName], in any spelling.
func isHostName(s string) bool {
	d, _, err := parseDestination(s)
	return err == nil && d.name == HostName
}

// forHost reports whether a rule opens a service of the host.
func (r *rule) forHost(dests []destination) bool {
	return r.allow && slices.ContainsFunc(dests, func(d destination) bool { return d.name == HostName })
}

// checkForHost checks a rule that opens services of the host.
func checkForHost(at string, r *rule, dests []destination) *fault {
	switch {
	case len(dests) > 1:
		return faultf(at+".allow", "make a rule of its own of it", "%s stands alone", HostName)
	case len(r.ports) == 0:
		return faultf(at+".ports", "write "+HostName+":5432, or ports: [\"5432\"]", "%s needs the ports that are opened", HostName)
	case r.protocol != anyProtocol && r.protocol != onlyTCP:
		return faultf(at+".protocol", "leave it out", "%s is reached by TCP, and nobody looks inside", HostName)
	case r.looks():
		return faultf(at, "leave out methods, paths and inspect", "nobody looks inside what goes to %s", HostName)
	case r.said.Limits.RequestsPerSecond > 0:
		return faultf(at+".limits.requestsPerSecond", "", "nobody sees requests to %s", HostName)
	}
	for i, p := range r.ports {
		if p.from != p.to {
			return faultf(fmt.Sprintf("%s.ports[%d]", at, i), "list each port", "%s needs single ports", HostName)
		}
	}
	return nil
}

// openHost opens the ports of the last rule, which is for the host. A rule before it that denies
// the name, or everything, wins.
func (p *Policy) openHost(at string) *fault {
	last := &p.rules[len(p.rules)-1]
	for _, port := range last.ports {
		for _, pos := range p.hostDenials {
			if d := &p.rules[pos]; d.hasPort(port.from) && d.protocol != onlyUDP {
				return faultf(at, "put it before "+d.label+", or leave it out", "%s can never match: %s before it denies port %d", last.label, d.label, port.from)
			}
		}
		if p.hostRule(port.from) == nil {
			p.host = append(p.host, hostPort{port.from, last.pos})
		}
	}
	if len(p.host) > maxHostPorts {
		return faultf(at+".ports", "", "more than %d ports of the host in all", maxHostPorts)
	}
	return nil
}

// deniesHost reports whether a rule's destinations cover the host's name.
func deniesHost(dests []destination) bool {
	return slices.ContainsFunc(dests, func(d destination) bool {
		return d.any || d.name == HostName || d.suffix != "" && strings.HasSuffix(HostName, "."+d.suffix) ||
			d.prefix.IsValid() && d.prefix.Contains(HostAddr)
	})
}

// hostRule returns the rule that opens a port of the host.
func (p *Policy) hostRule(port uint16) *rule {
	for _, h := range p.host {
		if h.port == port {
			return &p.rules[h.rule]
		}
	}
	return nil
}

// toHost reports whether a flow is for a service of the host: it goes to the host's address. If no
// address is known, as in an explanation of a policy, the name decides.
func (f *known) toHost() bool {
	if f.Addr.IsValid() {
		return f.addr == HostAddr
	}
	name, _ := canonical(f.Name)
	return name == HostName || f.Name == "" && slices.Contains(f.names, HostName)
}

// judgeHost judges a flow to a service of the host.
func (p *Policy) judgeHost(f *known) Verdict {
	if f.stage == atUDP {
		return builtIn("host services", "a service of the host is reached by TCP alone", "")
	}
	if r := p.hostRule(f.Port); r != nil {
		return Verdict{Allow: true, Host: true, Rule: r.label, Index: r.limits}
	}
	return p.noHost(f.Port)
}

// judgeHostName judges a DNS question for the host's name.
func (p *Policy) judgeHostName() Verdict {
	if len(p.host) == 0 {
		return p.noHost(0)
	}
	return Verdict{Allow: true, Host: true, Rule: p.rules[p.host[0].rule].label, Index: -1}
}

// noHost refuses a port of the host that no rule opens. 0 is no port in particular.
func (p *Policy) noHost(port uint16) Verdict {
	if port == 0 {
		return builtIn("host services", "no rule opens a service of this host", HostHint(0))
	}
	return builtIn("host services", fmt.Sprintf("no rule opens port %d of this host", port), HostHint(port))
}

// HostHint says how to ask for a service of the host, to a caller that tried an address of the
// host.
func HostHint(port uint16) string {
	text := "PORT"
	if port != 0 {
		text = strconv.Itoa(int(port))
	}
	return "ask for: allow " + HostName + ":" + text + ", for a service that listens on this machine's 127.0.0.1"
}

// HostInstead returns the destination to allow after a refusal of this machine itself, by an
// address or by a name that other systems have for it. It returns "" for all other refusals.
func HostInstead(d carrel.Decision) string {
	name, _ := canonical(d.Name)
	switch d.Rule {
	case "built-in: " + thisHost, "built-in: " + linkEnd, hostRefused:
	default:
		if !slices.Contains(othersHostNames, name) {
			return ""
		}
	}
	port := "PORT"
	if d.Port != 0 && d.Protocol != "dns" {
		port = strconv.Itoa(int(d.Port))
	}
	return HostName + ":" + port
}

// hostRefused names the built-in rule that refuses ports of the host that no rule opens.
const hostRefused = "built-in: host services"

// othersHostNames are names that other systems have for the host.
var othersHostNames = []string{"host.docker.internal", "gateway.docker.internal", "host.containers.internal", "localhost"}
