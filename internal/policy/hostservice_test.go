package policy_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

// toHost is a rule that opens ports of the host.
func toHost(ports ...string) carrel.Rule {
	return carrel.Rule{Allow: []string{policy.HostName}, Ports: ports}
}

var hostAddr = policy.HostAddr.String()

// TestHostService shows that one rule opens one port of the host, and that nothing else does.
func TestHostService(t *testing.T) {
	everything := carrel.Policy{Default: "allow", Rules: []carrel.Rule{allow("*", "*.carrel.internal", "*.internal", "10.0.0.0/8", "0.0.0.0/0", "::/0")}}
	withHost := everything
	withHost.Rules = append([]carrel.Rule{toHost("5432")}, everything.Rules...)
	denied := rules(with(deny("*"), func(r *carrel.Rule) { r.Ports = []string{"6379"} }), toHost("5432"))
	for _, c := range []struct {
		name string
		p    carrel.Policy
		f    policy.Flow
		want string
		host bool
	}{
		{"its port", rules(toHost("5432")), tcp(hostAddr, 5432, policy.HostName), "allow", true},
		{"its port, by the address", rules(toHost("5432")), tcp(hostAddr, 5432), "allow", true},
		{"by tcp in so many words", rules(with(toHost("5432"), func(r *carrel.Rule) { r.Protocol = "tcp" })), tcp(hostAddr, 5432), "allow", true},
		{"one of two ports", rules(toHost("5432", "6379")), tcp(hostAddr, 6379), "allow", true},
		{"another port", rules(toHost("5432")), tcp(hostAddr, 5433), "deny", false},
		{"another port beside everything", withHost, tcp(hostAddr, 5433, policy.HostName), "deny", false},
		{"udp", withHost, udp(hostAddr, 5432), "deny", false},
		{"port 53 by udp", withHost, udp(hostAddr, 53), "deny", false},
		{"everything", everything, tcp(hostAddr, 5432, policy.HostName), "deny", false},
		{"everything, with TLS", everything, tls(tcp(hostAddr, 443, policy.HostName), policy.HostName), "deny", false},
		{"everything, with a request", everything, request(tcp(hostAddr, 80, policy.HostName), "GET", policy.HostName, "/"), "deny", false},
		{"a name that has its address", withHost, tcp("127.0.0.1", 5432, policy.HostName), "deny", false},
		{"loopback of IPv6", withHost, tcp("::1", 5432, policy.HostName), "deny", false},
		{"a mapped address", withHost, tcp("::ffff:127.0.0.1", 5432, policy.HostName), "deny", false},
		{"the address in NAT64", withHost, tcp("64:ff9b::"+hostAddr, 5432, policy.HostName), "deny", false},
		{"the address in 6to4", withHost, tcp("2002:a49:4::1", 5432, policy.HostName), "deny", false},
		{"the gateway", withHost, tcp("10.73.0.1", 5432, policy.HostName), "deny", false},
		{"denied elsewhere", denied, tcp(hostAddr, 5432), "allow", true},
	} {
		p := ours(t, c.p)
		if v := p.Judge(c.f); outcome(v) != c.want || v.Host != c.host || v.Rule == "" {
			t.Errorf("%s: %s, host %v, %+v", c.name, outcome(v), v.Host, v)
		}
	}
	// Names that resolve to the host's address, or to loopback, don't open it.
	p := ours(t, withHost)
	for _, to := range []string{hostAddr, "127.0.0.1", "::1", "::ffff:" + hostAddr, "64:ff9b::" + hostAddr} {
		a := netip.MustParseAddr(to)
		if v := p.JudgeTarget(tcp("203.0.113.9", 5432, "evil.example.com"), a); v.Allow || v.Host || p.Reaches(a) {
			t.Errorf("a name leads to %s: %+v", to, v)
		}
	}
	for _, c := range []struct {
		name string
		p    carrel.Policy
		want bool
	}{{policy.HostName, everything, false}, {policy.HostName, withHost, true}, {"HOST.carrel.internal.", withHost, true}, {"host.docker.internal", carrel.Policy{}, false}} {
		v := ours(t, c.p).JudgeName(c.name)
		if v.Allow != c.want || v.Host != c.want || !c.want && !strings.Contains(v.Hint, "allow host.carrel.internal:") {
			t.Errorf("the name %s: %+v", c.name, v)
		}
	}
	// A refusal of the host's own addresses names the destination to ask for.
	if v := p.Judge(tcp("127.0.0.1", 6379)); !strings.Contains(v.Hint, "allow host.carrel.internal:6379") {
		t.Errorf("the hint is %q", v.Hint)
	}
	if v := p.Judge(tcp("169.254.169.254", 80)); v.Hint != "" {
		t.Errorf("the metadata service's hint is %q", v.Hint)
	}
	x, err := policy.Explain(p, "tcp host.carrel.internal:5432", netip.Addr{})
	if err != nil || !x.Allowed {
		t.Errorf("explained as %+v, %v", x, err)
	}
}

// TestBadHostService shows that a rule is refused if it would open more than its text says.
func TestBadHostService(t *testing.T) {
	for _, c := range []struct {
		name string
		n    carrel.Network
		text string
	}{
		{"no port", host(toHost()), "needs the ports"},
		{"a range", host(toHost("1-65535")), "needs single ports"},
		{"beside another", host(carrel.Rule{Allow: []string{policy.HostName, "example.com"}, Ports: []string{"80"}}), "stands alone"},
		{"beside everything", host(carrel.Rule{Allow: []string{"*", "Host.Carrel.Internal."}, Ports: []string{"80"}}), "stands alone"},
		{"udp", host(with(toHost("53"), func(r *carrel.Rule) { r.Protocol = "udp" })), "reached by TCP"},
		{"paths", host(with(toHost("80"), func(r *carrel.Rule) { r.Paths = []string{"/x"} })), "nobody looks inside"},
		{"requests", host(with(toHost("80"), func(r *carrel.Rule) { r.Limits.RequestsPerSecond = 1 })), "nobody sees requests"},
		{"denied before", host(deny("*"), toHost("80")), "can never match"},
		{"its name denied before", host(deny("*.carrel.internal"), toHost("80")), "can never match"},
		{"its address", host(allow(hostAddr)), "no sandbox reaches it"},
		{"E2B's form", carrel.Network{AllowOut: []string{policy.HostName}, DenyOut: []string{"0.0.0.0/0"}}, "can't be opened here"},
		{"E2B's form with a port", carrel.Network{AllowOut: []string{policy.HostName + ":80"}, DenyOut: []string{"0.0.0.0/0"}}, "can't be opened here"},
	} {
		if _, err := policy.Compile(c.n); err == nil || !strings.Contains(err.Error(), c.text) || carrel.KindOf(err) != carrel.Invalid {
			t.Errorf("%s: %v, want %q", c.name, err, c.text)
		}
	}
	for _, spelled := range []string{"host.carrel.internal", "HOST.Carrel.Internal", "host.carrel.internal."} {
		if !policy.OpensHost(host(allow("example.com"), carrel.Rule{Allow: []string{spelled}})) {
			t.Errorf("%s is not seen", spelled)
		}
	}
	if policy.OpensHost(host(allow("*"), deny(policy.HostName))) || policy.OpensHost(carrel.Network{Internet: true}) {
		t.Error("what does not open the host counts as if it did")
	}
}

func host(list ...carrel.Rule) carrel.Network {
	p := rules(list...)
	return carrel.Network{Policy: &p}
}
