package policy_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

// ours compiles a policy in Carrel's own form.
func ours(t testing.TB, p carrel.Policy) *policy.Policy {
	t.Helper()
	return compiled(t, carrel.Network{Policy: &p})
}

func compiled(t testing.TB, n carrel.Network) *policy.Policy {
	t.Helper()
	c, err := policy.Compile(n)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func allow(dest ...string) carrel.Rule { return carrel.Rule{Allow: dest} }
func deny(dest ...string) carrel.Rule  { return carrel.Rule{Deny: dest} }

// with changes a rule.
func with(r carrel.Rule, change func(*carrel.Rule)) carrel.Rule {
	change(&r)
	return r
}

func rules(list ...carrel.Rule) carrel.Policy { return carrel.Policy{Rules: list} }

// outcome describes a verdict in one word.
func outcome(v policy.Verdict) string {
	switch {
	case v.Inspect:
		return "inspect"
	case v.Terminate && v.Allow:
		return "terminate"
	case v.Requests && v.Allow:
		return "requests"
	case v.Allow:
		return "allow"
	}
	return "deny"
}

func tcp(addr string, port uint16, names ...string) policy.Flow {
	return policy.Flow{Addr: netip.MustParseAddr(addr), Port: port, Names: names}
}

func udp(addr string, port uint16, names ...string) policy.Flow {
	f := tcp(addr, port, names...)
	f.UDP = true
	return f
}

func tls(f policy.Flow, name string) policy.Flow {
	f.App, f.Name = policy.AppTLS, name
	return f
}

func http(f policy.Flow, host string) policy.Flow {
	f.App, f.Name = policy.AppHTTP, host
	return f
}

func other(f policy.Flow) policy.Flow {
	f.App = policy.AppOther
	return f
}

// request returns the flow of a cleartext HTTP request.
func request(f policy.Flow, method, host, path string) policy.Flow {
	f = http(f, host)
	f.Method, f.Path = method, path
	return f
}

// opened returns the flow of a request in TLS that was opened for the same host.
func opened(f policy.Flow, method, host, path string) policy.Flow {
	f = request(f, method, host, path)
	f.Opened, f.ServerName = true, host
	return f
}

const site, site2, other6 = "203.0.113.9", "203.0.113.10", "2001:db8::9"

type judged struct {
	name   string
	flow   policy.Flow
	want   string // outcome
	rule   string // part of Verdict.Rule
	reason string // part of Verdict.Reason
}

func judge(t *testing.T, p *policy.Policy, cases []judged) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			v := p.Judge(c.flow)
			if got := outcome(v); got != c.want {
				t.Errorf("%s, want %s: %+v", got, c.want, v)
			}
			if v.Rule == "" || !strings.Contains(v.Rule, c.rule) {
				t.Errorf("rule %q, want %q", v.Rule, c.rule)
			}
			if !strings.Contains(v.Reason, c.reason) {
				t.Errorf("reason %q, want %q", v.Reason, c.reason)
			}
			if refused := outcome(v) == "deny"; refused != (v.Reason != "") {
				t.Errorf("outcome %s with the reason %q", outcome(v), v.Reason)
			}
		})
	}
}

func TestNames(t *testing.T) {
	p := ours(t, rules(allow("api.example.com", "*.example.org")))
	api := tcp(site, 443, "api.example.com")
	judge(t, p, []judged{
		{"start", api, "inspect", "rule 1", ""},
		{"start of an address nobody asked for", tcp(site, 443), "deny", "default", "tcp 203.0.113.9:443 is not allowed: no rule names it"},
		{"start of another name's", tcp(site, 443, "www.example.com"), "deny", "default", "www.example.com"},
		{"server name", tls(api, "api.example.com"), "allow", "rule 1", ""},
		{"case and last dot", tls(api, "API.Example.com."), "allow", "rule 1", ""},
		{"any port", tls(tcp(site, 8443, "api.example.com"), "api.example.com"), "allow", "rule 1", ""},
		{"below the wildcard", tls(tcp(site, 443, "a.b.example.org"), "a.b.example.org"), "allow", "rule 1", ""},
		{"the wildcard's own name", tls(tcp(site, 443, "example.org"), "example.org"), "deny", "default", ""},
		{"no server name", tls(api, ""), "deny", "default", "says none"},
		{"another server name", tls(api, "www.example.net"), "deny", "default", ""},
		{"a name that was not asked for", tls(tcp(site, 443, "x.example.org"), "api.example.com"), "deny", "default", "not got from the resolver for api.example.com"},
		{"below an exact name", tls(tcp(site, 443, "x.api.example.com"), "x.api.example.com"), "deny", "default", ""},
		{"a name that ends like it", tls(tcp(site, 443, "evilexample.org"), "evilexample.org"), "deny", "default", ""},
		{"a dot inside a label", tls(tcp(site, 443, `x\.example.org`), `x\.example.org`), "deny", "default", ""},
		{"NUL in the name", tls(tcp(site, 443, "api.example.com"), "api.example.com\x00.example.net"), "deny", "default", ""},
		{"something else", other(api), "deny", "default", "says no name"},
		{"UDP", udp(site, 443, "api.example.com"), "deny", "default", "over TCP only"},
		{"HTTP", http(api, "api.example.com"), "requests", "rule 1", ""},
		{"HTTP of another host first", http(api, "www.example.net"), "requests", "rule 1", ""},
		{"request", request(api, "GET", "api.example.com", "/"), "allow", "rule 1", ""},
		{"request to another host", request(api, "GET", "www.example.net", "/"), "deny", "default", ""},
		{"request without a host", request(api, "GET", "", "/"), "deny", "default", ""},
		{"CONNECT", request(api, "CONNECT", "api.example.com", "api.example.com:22"), "deny", "built-in", "tunnel"},
	})
	if v := p.Judge(tls(api, "api.example.com")); v.ByName != "api.example.com" {
		t.Errorf("to be dialled: %q", v.ByName)
	}
	ech := tls(api, "api.example.com")
	ech.ECH = true
	judge(t, p, []judged{{"ECH", ech, "deny", "rule 1", "hides another name"}})
}

func TestFronting(t *testing.T) {
	p := ours(t, rules(with(allow("api.example.com"), func(r *carrel.Rule) { r.Inspect = true }), allow("www.example.com")))
	f := tcp(site, 443, "api.example.com", "www.example.com")
	front := opened(f, "GET", "www.example.com", "/")
	front.ServerName = "api.example.com"
	judge(t, p, []judged{
		{"hello", tls(f, "api.example.com"), "terminate", "rule 1", ""},
		{"same host", opened(f, "GET", "api.example.com", "/"), "allow", "rule 1", ""},
		{"another allowed host", front, "deny", "built-in", "TLS was opened for api.example.com"},
	})
}
