package policy_test

import (
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

func TestInject(t *testing.T) {
	p := ours(t, carrel.Policy{Default: "allow", Rules: []carrel.Rule{with(allow("ssh.example.com"), func(r *carrel.Rule) { r.Protocol, r.Ports = "tcp", []string{"22"} })},
		Inject: []carrel.Injection{
			{Host: "api.example.com", Paths: []string{"/admin/**"}, Bearer: "admin"},
			{Host: "api.example.com", Methods: []string{"GET"}, Bearer: "reader"},
			{Host: "*.example.com", Bearer: "wide"},
			{Host: "*.eu.example.com", Bearer: "narrow", Cleartext: true},
			{Host: "ssh.example.com", Bearer: "key"},
		}})
	key := func(v policy.Verdict) string {
		if v.Inject == nil {
			return ""
		}
		return v.Inject.Bearer
	}
	api := tcp(site, 443, "api.example.com")
	for _, c := range []struct {
		name string
		f    policy.Flow
		want string
		key  string
	}{
		{"start", api, "inspect", ""},
		{"hello", tls(api, "api.example.com"), "terminate", ""},
		{"first that matches", opened(api, "GET", "api.example.com", "/admin/x"), "allow", "admin"},
		{"second", opened(api, "GET", "api.example.com", "/x"), "allow", "reader"},
		{"none of them, and no wider one", opened(api, "POST", "api.example.com", "/x"), "allow", ""},
		{"ambiguous path", opened(api, "POST", "api.example.com", "/admin/../x"), "allow", ""},
		{"without TLS", request(api, "GET", "api.example.com", "/x"), "allow", ""},
		{"wide", opened(tcp(site, 443, "x.y.example.com"), "GET", "x.y.example.com", "/"), "allow", "wide"},
		{"longest pattern", opened(tcp(site, 443, "x.eu.example.com"), "GET", "x.eu.example.com", "/"), "allow", "narrow"},
		{"apex", opened(tcp(site, 443, "example.com"), "GET", "example.com", "/"), "allow", ""},
		{"cleartext that may", request(tcp(site, 80, "x.eu.example.com"), "GET", "x.eu.example.com", "/"), "allow", "narrow"},
		{"cleartext that may, before", http(tcp(site, 80, "x.eu.example.com"), "x.eu.example.com"), "requests", ""},
		// Credentials go only to the name itself.
		{"an address of nobody", tcp(site2, 443), "allow", ""},
		{"an address of nobody that claims the name", tls(tcp(site2, 443), "api.example.com"), "allow", ""},
		{"an address of another that claims the name", tls(tcp(site2, 443, "evil.example"), "api.example.com"), "allow", ""},
		{"request to another's address", opened(tcp(site2, 443, "evil.example"), "GET", "api.example.com", "/admin/x"), "allow", ""},
		{"cleartext to another's address", request(tcp(site2, 80, "evil.example"), "GET", "x.eu.example.com", "/"), "allow", ""},
		{"QUIC to the host", udp(site, 443, "api.example.com"), "deny", ""},
		{"tcp by name is nobody's business", tcp(site, 22, "ssh.example.com"), "allow", ""},
		{"but for its other ports", tcp(site, 443, "ssh.example.com"), "inspect", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := p.Judge(c.f)
			if outcome(v) != c.want || key(v) != c.key {
				t.Errorf("want %s with %q: %+v, %+v", c.want, c.key, v, v.Inject)
			}
			if v.Inject != nil && v.ByName != c.f.Name {
				t.Errorf("credentials go to %q", v.ByName)
			}
		})
	}
	// A denied host gets nothing.
	shut := ours(t, carrel.Policy{Inject: []carrel.Injection{{Host: "api.example.com", Bearer: "key"}}})
	for _, f := range []policy.Flow{api, tls(api, "api.example.com"), opened(api, "GET", "api.example.com", "/")} {
		if v := shut.Judge(f); v.Allow || v.Inspect || v.Inject != nil {
			t.Errorf("%+v", v)
		}
	}
}

func TestEnv(t *testing.T) {
	p := ours(t, carrel.Policy{Inject: []carrel.Injection{
		{Host: "a.example", Bearer: "a", Env: map[string]string{"A_KEY": "", "BOTH": "first"}},
		{Host: "b.example", Bearer: "b", Env: map[string]string{"B_KEY": "sk-not-real", "BOTH": "second"}},
	}})
	env := p.Env()
	if len(env) != 3 || env["A_KEY"] != policy.Placeholder || env["B_KEY"] != "sk-not-real" || env["BOTH"] != "first" {
		t.Errorf("%v", env)
	}
	if ours(t, carrel.Policy{}).Env() != nil {
		t.Error("variables of nothing")
	}
}

func TestLimits(t *testing.T) {
	a, b := carrel.TrafficLimits{Connections: 1}, carrel.TrafficLimits{SendBytesPerSecond: 2}
	p := ours(t, carrel.Policy{Limits: carrel.TrafficLimits{Connections: 9}, Presets: []string{"openai"}, Rules: []carrel.Rule{
		with(allow("a.example"), func(r *carrel.Rule) { r.Limits = a }), allow("b.example"), with(allow("203.0.113.0/24"), func(r *carrel.Rule) { r.Limits = b }),
	}})
	list, total := p.Limits()
	if total.Connections != 9 || len(list) != 2 {
		t.Fatalf("%+v %+v", list, total)
	}
	for f, want := range map[string]carrel.TrafficLimits{"a.example": a, "b.example": {}, "": b} {
		flow := tcp(site, 443)
		if f != "" {
			flow = tls(tcp("192.0.2.1", 443, f), f)
		}
		v := p.Judge(flow)
		got := carrel.TrafficLimits{}
		if v.Index >= 0 {
			got = list[v.Index]
		}
		if !v.Allow || got != want {
			t.Errorf("%s: %+v with %+v", f, v, got)
		}
	}
}

// TestImmutable changes the caller's lists afterwards. The policy must stay the same.
func TestImmutable(t *testing.T) {
	src := carrel.Policy{Rules: []carrel.Rule{{Allow: []string{"a.example"}, Methods: []string{"GET"}, Paths: []string{"/x"}}},
		Inject: []carrel.Injection{{Host: "a.example", Methods: []string{"GET"}, Headers: map[string]string{"X-A": "a"}}}}
	p := ours(t, src)
	src.Rules[0].Allow[0], src.Rules[0].Methods[0], src.Rules[0].Paths[0] = "b.example", "POST", "/y"
	src.Inject[0].Methods[0], src.Inject[0].Headers["X-A"] = "POST", "b"
	p.Injections()[0].Headers["X-A"] = "c"
	v := p.Judge(opened(tcp(site, 443, "a.example"), "GET", "a.example", "/x"))
	if !v.Allow || v.Inject == nil || v.Inject.Headers["X-A"] != "a" {
		t.Errorf("%+v %+v", v, v.Inject)
	}
	if w := p.Words(); w[0] != "rule 1: allow a.example over TLS or HTTP, GET on /x (TLS is opened)" {
		t.Error(w[0])
	}
}
