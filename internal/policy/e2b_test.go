package policy_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

const all4, all6 = "0.0.0.0/0", "::/0"

func TestE2B(t *testing.T) {
	names := carrel.Network{Internet: true, AllowOut: []string{"api.example.com", "*.example.org", "198.51.100.0/24"}, DenyOut: []string{all4}}
	off := carrel.Network{AllowOut: []string{"198.51.100.7", "198.51.100.64/26"}}
	some := carrel.Network{Internet: true, AllowOut: []string{"203.0.113.9"}, DenyOut: []string{"203.0.113.0/24", "2001:db8:1::/48"}}
	six := carrel.Network{Internet: true, DenyOut: []string{all6}}
	star := carrel.Network{AllowOut: []string{"*"}, DenyOut: []string{all4}}
	api := tcp(site, 9443, "api.example.com")
	for _, c := range []struct {
		name string
		n    carrel.Network
		f    policy.Flow
		want string
		rule string
	}{
		{"nothing said", carrel.Network{}, tcp(site, 443), "deny", "internet: false"},
		{"internet", carrel.Network{Internet: true}, tcp(site, 443), "allow", "internet: true"},
		{"internet, UDP", carrel.Network{Internet: true}, udp(site, 443), "allow", "internet: true"},
		{"internet, IPv6", carrel.Network{Internet: true}, tcp(other6, 22), "allow", "internet: true"},
		{"internet, private", carrel.Network{Internet: true}, tcp("10.0.0.1", 22), "deny", "built-in"},
		{"off, allowed address", off, tcp("198.51.100.7", 22), "allow", "allowOut"},
		{"off, allowed block", off, udp("198.51.100.65", 22), "allow", "allowOut"},
		{"off, other address", off, tcp("198.51.100.8", 22), "deny", "internet: false"},
		{"names, start", names, api, "inspect", "allowOut"},
		{"names, TLS on any port", names, tls(api, "api.example.com"), "allow", "allowOut"},
		{"names, HTTP on any port", names, http(api, "api.example.com"), "requests", "allowOut"},
		{"names, something else", names, other(api), "deny", "denyOut"},
		{"names, QUIC", names, udp(site, 443, "api.example.com"), "deny", "denyOut"},
		{"names, wildcard", names, tls(tcp(site, 443, "a.b.example.org"), "a.b.example.org"), "allow", "allowOut"},
		{"names, apex", names, tls(tcp(site, 443, "example.org"), "example.org"), "deny", "denyOut"},
		{"names, other", names, tcp(site, 443, "example.net"), "deny", "denyOut"},
		{"names, raw address", names, tcp(site, 443), "deny", "denyOut"},
		{"names, IPv6", names, tcp(other6, 443), "deny", "denyOut"},
		{"names, allowed block", names, tcp("198.51.100.1", 25), "allow", "allowOut"},
		{"allow beats deny", some, tcp(site, 443), "allow", "allowOut"},
		{"denied block", some, tcp(site2, 443), "deny", "denyOut"},
		{"denied block by NAT64", some, tcp("64:ff9b::203.0.113.10", 443), "deny", "denyOut"},
		{"denied IPv6", some, tcp("2001:db8:1::1", 443), "deny", "denyOut"},
		{"not denied", some, tcp("2001:db8:2::1", 443), "allow", "internet: true"},
		{"all of IPv6 is everything", six, tcp(site, 443), "deny", "denyOut"},
		{"everything by star", star, tcp(site, 443), "allow", "allowOut"},
		{"private though named", carrel.Network{AllowOut: []string{"10.0.0.0/8"}}, tcp("10.0.0.1", 443), "deny", "built-in"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := compiled(t, c.n).Judge(c.f)
			if outcome(v) != c.want || !strings.Contains(v.Rule, c.rule) {
				t.Errorf("want %s by %s: %+v", c.want, c.rule, v)
			}
			if strings.Contains(v.Hint, "ask for: allow ") {
				t.Errorf("the hint is in our own words: %s", v.Hint)
			}
		})
	}
	for name, c := range map[string]struct {
		n    carrel.Network
		want bool
	}{
		"api.example.com":  {names, true},
		"x.example.org":    {names, true},
		"example.org":      {names, false},
		"www.example.net":  {names, false},
		"any.example":      {carrel.Network{Internet: true}, true},
		"none.example":     {carrel.Network{}, false},
		"address.example":  {off, false}, // addresses open no names
		"star.example":     {star, true},
		"denied.example":   {carrel.Network{Internet: true, DenyOut: []string{all4}}, false},
		"some.example":     {some, true},
		"open.example":     {carrel.Network{AllowOut: []string{all4}}, true},
		"v6denied.example": {six, false},
	} {
		if v := compiled(t, c.n).JudgeName(name); v.Allow != c.want || v.Rule == "" {
			t.Errorf("%s: %+v", name, v)
		}
	}
	// An allowed name may lead into a denied block.
	v := compiled(t, carrel.Network{AllowOut: []string{"api.example.com"}, DenyOut: []string{all4, "203.0.113.0/24"}}).
		JudgeTarget(tls(tcp("192.0.2.1", 443, "api.example.com"), "api.example.com"), netip.MustParseAddr(site))
	if !v.Allow {
		t.Errorf("%+v", v)
	}
}

func TestE2BTransforms(t *testing.T) {
	headers := func(kv ...string) []carrel.NetworkRule {
		var out []carrel.NetworkRule
		for i := 0; i < len(kv); i += 2 {
			out = append(out, carrel.NetworkRule{Transform: &carrel.NetworkTransform{Headers: map[string]string{kv[i]: kv[i+1]}}})
		}
		return out
	}
	p := compiled(t, carrel.Network{Internet: true, Rules: map[string][]carrel.NetworkRule{
		"API.example.com":   headers("X-Key", "first", "x-key", "last", "X-Other", "${e2b.secrets.other}"),
		"*.example.com":     headers("X-Key", "wide"),
		"*.b.example.com":   headers("X-Key", "narrow"),
		"empty.example.com": {{}},
	}})
	for host, want := range map[string]map[string]string{
		"api.example.com":   {"x-key": "last", "X-Other": "${e2b.secrets.other}"},
		"www.example.com":   {"X-Key": "wide"},
		"a.b.example.com":   {"X-Key": "narrow"},
		"x.a.b.example.com": {"X-Key": "narrow"},
		"b.example.com":     {"X-Key": "wide"},
		"example.com":       nil,
		"example.net":       nil,
	} {
		f := tcp(site, 443, host)
		v := p.Judge(opened(f, "GET", host, "/"))
		switch {
		case !v.Allow:
			t.Errorf("%s: %+v", host, v)
		case want == nil:
			if v.Inject != nil || outcome(p.Judge(tls(f, host))) != "allow" || outcome(p.Judge(f)) != "allow" {
				t.Errorf("%s: %+v", host, v)
			}
		case v.Inject == nil || len(v.Inject.Headers) != len(want):
			t.Errorf("%s: %+v", host, v.Inject)
		default:
			for k, value := range want {
				if v.Inject.Headers[k] != value {
					t.Errorf("%s: %+v", host, v.Inject)
				}
			}
			if outcome(p.Judge(f)) != "inspect" || outcome(p.Judge(tls(f, host))) != "terminate" || v.ByName != host {
				t.Errorf("%s: %+v", host, v)
			}
		}
	}
	if !p.Opens() || len(p.Injections()) != 3 {
		t.Errorf("%v %d", p.Opens(), len(p.Injections()))
	}
	// Rules open nothing.
	shut := compiled(t, carrel.Network{Rules: map[string][]carrel.NetworkRule{"api.example.com": headers("A", "b")}})
	if v := shut.Judge(tls(tcp(site, 443, "api.example.com"), "api.example.com")); v.Allow {
		t.Errorf("%+v", v)
	}
}

// TestE2BPorts uses hosts with a port, as getHost of E2B's SDKs returns them when the daemon's
// domain has one. Rules about such a host hold for this port only.
func TestE2BPorts(t *testing.T) {
	const host = "3000-i0abc.sandboxes.example.com"
	set := func(value string) []carrel.NetworkRule {
		return []carrel.NetworkRule{{Transform: &carrel.NetworkTransform{Headers: map[string]string{"X-Key": value}}}}
	}
	p := compiled(t, carrel.Network{AllowOut: []string{host + ":7070", "*.example.org:8443", "api.example.net"}, DenyOut: []string{all4},
		Rules: map[string][]carrel.NetworkRule{host + ":7070": set("here"), "api.example.net": set("all"), "api.example.net:8443": set("one")}})
	for _, c := range []struct {
		host string
		port uint16
		key  string // "-" for a refusal
	}{
		{host, 7070, "here"}, {host, 443, "-"}, {host, 80, "-"}, {"a.example.org", 8443, ""}, {"a.example.org", 443, "-"},
		{"api.example.net", 443, "all"}, {"api.example.net", 8443, "one"},
	} {
		f := tcp(site, c.port, c.host)
		if c.key == "-" {
			if v := p.Judge(f); outcome(v) != "deny" || !strings.Contains(v.Rule, "denyOut") {
				t.Errorf("%s:%d: %+v", c.host, c.port, v)
			}
			continue
		}
		v, key := p.Judge(opened(f, "GET", c.host, "/")), ""
		if v.Inject != nil {
			key = v.Inject.Headers["X-Key"]
		}
		if !v.Allow || key != c.key || outcome(p.Judge(f)) != "inspect" {
			t.Errorf("%s:%d: %+v, puts in %q", c.host, c.port, v, key)
		}
		if v := p.JudgeName(c.host); !v.Allow {
			t.Errorf("the name %s: %+v", c.host, v)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	one := map[string][]carrel.NetworkRule{"a.example": {{Transform: &carrel.NetworkTransform{Headers: map[string]string{"Host": "b"}}}}}
	for name, c := range map[string]struct {
		n            carrel.Network
		field, words string
	}{
		"denied name":        {carrel.Network{DenyOut: []string{"example.com"}}, "denyOut[0]", "invalid denied CIDR example.com"},
		"denied zero":        {carrel.Network{DenyOut: []string{"0.0.0.0"}}, "denyOut[0]", "invalid denied CIDR 0.0.0.0"},
		"nonsense":           {carrel.Network{AllowOut: []string{"300.1.1.1"}, DenyOut: []string{all4}}, "allowOut[0]", "invalid allowed address 300.1.1.1"},
		"an address's port":  {carrel.Network{AllowOut: []string{"203.0.113.9", "203.0.113.9:443"}, DenyOut: []string{all4}}, "allowOut[1]", "invalid allowed address 203.0.113.9:443"},
		"no port":            {carrel.Network{AllowOut: []string{"a.example:0"}, DenyOut: []string{all4}}, "allowOut[0]", "invalid allowed address a.example:0"},
		"anybody's port":     {carrel.Network{AllowOut: []string{"*:443"}, DenyOut: []string{all4}}, "allowOut[0]", "invalid allowed address *:443"},
		"denied with a port": {carrel.Network{DenyOut: []string{"a.example:443"}}, "denyOut[0]", "invalid denied CIDR a.example:443"},
		"same host and port": {carrel.Network{Rules: map[string][]carrel.NetworkRule{"a.example:443": {{}}, "A.example:443": {{}}}}, "rules.a.example:443", "same host"},
		"allowed zero":       {carrel.Network{AllowOut: []string{"::"}}, "allowOut[0]", "invalid allowed address ::"},
		"names without deny": {carrel.Network{AllowOut: []string{"example.com"}}, "denyOut", "ALL_TRAFFIC"},
		"transform":          {carrel.Network{Rules: one}, "rules.a.example.Host", "can't be set"},
		"star":               {carrel.Network{Rules: map[string][]carrel.NetworkRule{"*": {{}}}}, "rules.*", "every host"},
		"block":              {carrel.Network{Rules: map[string][]carrel.NetworkRule{"203.0.113.0/24": {{}}}}, "rules.203.0.113.0/24", "no name"},
		"same host":          {carrel.Network{Rules: map[string][]carrel.NetworkRule{"a.example": {{}}, "A.example": {{}}}}, "rules.a.example", "same host"},
		"both forms":         {carrel.Network{Internet: true, Policy: &carrel.Policy{}}, "policy", "either"},
		"ours":               {carrel.Network{Policy: &carrel.Policy{Rules: []carrel.Rule{allow("a.example"), {Allow: []string{"*"}, Ports: []string{"0"}}}}}, "policy.rules[1].ports", "1 to 65535"},
		"proxy":              {carrel.Network{EgressProxy: &carrel.EgressProxy{Address: "example.com"}}, "egressProxy.address", "host:port"},
		"proxy port":         {carrel.Network{EgressProxy: &carrel.EgressProxy{Address: "example.com:0"}}, "egressProxy.address", "1 to 65535"},
		"proxy password":     {carrel.Network{EgressProxy: &carrel.EgressProxy{Address: "example.com:1080", Password: "x"}}, "egressProxy.password", "username"},
		"proxy, our form":    {carrel.Network{Policy: &carrel.Policy{}, EgressProxy: &carrel.EgressProxy{Address: "x"}}, "egressProxy.address", "host:port"},
		"mask, a path":       {carrel.Network{MaskHost: "x.example.com/x"}, "maskHost", "mask request host is not valid: x.example.com/x"},
		"mask, a line":       {carrel.Network{MaskHost: "a\r\nX-Evil: 1"}, "maskHost", `not valid: a\r\nX-Evil: 1`},
		"mask, not ASCII":    {carrel.Network{MaskHost: "bücher.example.com:80"}, "maskHost", "mask request host 'bücher.example.com' is not ASCII. Please use ASCII characters only."},
		"mask, a port only":  {carrel.Network{MaskHost: ":80"}, "maskHost", "not valid"},
		"mask, no port":      {carrel.Network{MaskHost: "x.example.com:65536"}, "maskHost", "not valid"},
		"mask, numbers":      {carrel.Network{MaskHost: "${PORT}"}, "maskHost", "not valid"},
		"mask, long":         {carrel.Network{MaskHost: strings.Repeat("a.", 128)}, "maskHost", "not valid"},
		"mask, half":         {carrel.Network{MaskHost: "[::1"}, "maskHost", "not valid"},
		"mask, star":         {carrel.Network{MaskHost: "*.example.com"}, "maskHost", "not valid"},
		"mask, zero":         {carrel.Network{MaskHost: "0.0.0.0:80"}, "maskHost", "not valid"},
		"port zero":          {carrel.Network{HTTPSPorts: []uint16{443, 0}}, "httpsPorts", "0 can't be a port that speaks TLS"},
		"the guest's port":   {carrel.Network{Policy: &carrel.Policy{}, HTTPSPorts: []uint16{carrel.GuestPort}}, "httpsPorts", "49983 can't be"},
	} {
		_, err := policy.Compile(c.n)
		var e *carrel.Error
		if !errors.As(err, &e) || e.Kind != carrel.Invalid || e.Field != c.field || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %+v: %v", name, e, err)
		}
	}
	// E2B accepts these forms of unreachable addresses. They are no error here, but open nothing.
	compiled(t, carrel.Network{AllowOut: []string{"127.0.0.1", "10.0.0.1/8", "::ffff:1.2.3.4", "::ffff:1.2.3.0/120"}, EgressProxy: &carrel.EgressProxy{Address: "[2001:db8::1]:1080", Username: "u", Password: "p"}})
}

// TestCompileAccepts compiles host names that requests from outside may be given.
func TestCompileAccepts(t *testing.T) {
	for _, mask := range []string{"localhost", "x.example.com:${PORT}", "app-${PORT}.example.com", "x.example.com:8080", "203.0.113.9", "203.0.113.9:1${PORT}", "[2001:db8::1]:80", "[2001:db8::1]"} {
		compiled(t, carrel.Network{MaskHost: mask, HTTPSPorts: []uint16{8443}})
	}
}

// TestPolicyKeepsNothing changes a network after it was compiled, and the values that the policy
// returned. The policy must stay the same.
func TestPolicyKeepsNothing(t *testing.T) {
	set := func(headers map[string]string) []carrel.NetworkRule {
		return []carrel.NetworkRule{{Transform: &carrel.NetworkTransform{Headers: headers}}}
	}
	headers := map[string]string{"X-Key": "given"}
	e2b := carrel.Network{AllowOut: []string{"203.0.113.9"}, Rules: map[string][]carrel.NetworkRule{"api.example.com": set(headers)},
		EgressProxy: &carrel.EgressProxy{Address: "proxy.example.com:1080", Username: "u", Password: "p"}}
	ours := carrel.Network{Policy: &carrel.Policy{Silent: true, Rules: []carrel.Rule{{Allow: []string{"203.0.113.9"}, Ports: []string{"443"}, Methods: []string{"GET"}, Paths: []string{"/a"}}},
		Inject: []carrel.Injection{{Host: "api.example.com", Headers: map[string]string{"X-Key": "given"}}}}}
	p, q := compiled(t, e2b), compiled(t, ours)
	if p.IsSilent() || !q.IsSilent() || q.Proxy() != nil {
		t.Errorf("silent %v, %v; proxy %v", p.IsSilent(), q.IsSilent(), q.Proxy())
	}
	e2b.AllowOut[0], headers["X-Key"], e2b.EgressProxy.Password = "198.51.100.1", "changed", "changed"
	r, in := &ours.Policy.Rules[0], &ours.Policy.Inject[0]
	r.Allow[0], r.Ports[0], r.Methods[0], r.Paths[0], in.Headers["X-Key"] = "198.51.100.1", "80", "PUT", "/b", "changed"
	p.Proxy().Password = "changed"
	if *p.Proxy() != (carrel.EgressProxy{Address: "proxy.example.com:1080", Username: "u", Password: "p"}) {
		t.Errorf("the proxy is now %+v", p.Proxy())
	}
	if v := p.Judge(tcp(site, 22)); !v.Allow {
		t.Errorf("%+v", v)
	}
	if v := q.Judge(opened(tcp(site, 443), "GET", site, "/a")); !v.Allow {
		t.Errorf("%+v", v)
	}
	for _, have := range [][]carrel.Injection{p.Injections(), q.Injections()} {
		if len(have) != 1 || have[0].Headers["X-Key"] != "given" {
			t.Errorf("%+v", have)
		}
	}
}
