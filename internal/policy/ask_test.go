package policy_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

func compileAsk(t *testing.T, p carrel.Policy) *policy.Policy {
	t.Helper()
	c, err := policy.Compile(carrel.Network{Policy: &p})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var outside = netip.MustParseAddr("203.0.113.9")

// TestAskJudges checks what a rule that asks makes of flows. It never allows one.
func TestAskJudges(t *testing.T) {
	named := carrel.Policy{Rules: []carrel.Rule{{Ask: []string{"api.example.com"}, Ports: []string{"443", "80"}}}}
	every := carrel.Policy{Rules: []carrel.Rule{{Allow: []string{"ok.example.com"}}, {Ask: []string{"*"}}}}
	posts := carrel.Policy{Rules: []carrel.Rule{{Ask: []string{"api.example.com"}, Methods: []string{"POST"}, Paths: []string{"/v1/**"}},
		{Allow: []string{"api.example.com"}}}}
	api, evil := []string{"api.example.com"}, []string{"evil.example.net"}
	tls := policy.Flow{Addr: outside, Port: 443, App: policy.AppTLS, Name: "api.example.com"}
	with := func(f policy.Flow, names []string) policy.Flow { f.Names = names; return f }
	request := policy.Flow{Addr: outside, Port: 443, Names: api, App: policy.AppHTTP, Name: "api.example.com", Opened: true, ServerName: "api.example.com"}
	as := func(f policy.Flow, method, path string) policy.Flow { f.Method, f.Path = method, path; return f }
	for name, c := range map[string]struct {
		policy carrel.Policy
		flow   policy.Flow
		want   string // ask, allow, deny, look, more
		byName string
	}{
		"the start of a named one is looked at": {named, policy.Flow{Addr: outside, Port: 443, Names: api}, "look", ""},
		"its hello is asked about":              {named, with(tls, api), "ask", "api.example.com"},
		"a forged name is denied":               {named, with(tls, evil), "deny", ""},
		"a hidden name is denied":               {named, func() policy.Flow { f := with(tls, api); f.ECH = true; return f }(), "deny", ""},
		"another port is denied":                {named, policy.Flow{Addr: outside, Port: 22, Names: api}, "deny", ""},
		"everything is looked at":               {every, policy.Flow{Addr: outside, Port: 443}, "look", ""},
		"a name of everything is dialled":       {every, with(tls, api), "ask", "api.example.com"},
		"a forged name is not the question's":   {every, with(tls, evil), "ask", ""},
		"an allowed name is not asked about":    {every, policy.Flow{Addr: outside, Port: 443, Names: []string{"ok.example.com"}, App: policy.AppTLS, Name: "ok.example.com"}, "allow", "ok.example.com"},
		"what says nothing is its address":      {every, policy.Flow{Addr: outside, Port: 22, Names: api, App: policy.AppOther}, "ask", ""},
		"UDP can't be held":                     {every, policy.Flow{Addr: outside, Port: 9999, UDP: true}, "deny", ""},
		"QUIC can't be held":                    {every, policy.Flow{Addr: outside, Port: 443, UDP: true}, "deny", ""},
		"loopback is never asked about":         {every, policy.Flow{Addr: netip.MustParseAddr("127.0.0.1"), Port: 443}, "deny", ""},
		"metadata is never asked about":         {every, policy.Flow{Addr: netip.MustParseAddr("169.254.169.254"), Port: 80}, "deny", ""},
		"private ones are never asked about":    {every, policy.Flow{Addr: netip.MustParseAddr("10.1.2.3"), Port: 80}, "deny", ""},
		"the host is never asked about":         {every, policy.Flow{Addr: policy.HostAddr, Port: 80}, "deny", ""},
		"requests are judged one by one":        {posts, with(tls, api), "more", ""},
		"a request is asked about":              {posts, as(request, "POST", "/v1/x"), "ask", "api.example.com"},
		"another is allowed":                    {posts, as(request, "GET", "/v1/x"), "allow", "api.example.com"},
		"an unclear path is denied":             {posts, as(request, "POST", "/v1//x"), "deny", ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := compileAsk(t, c.policy).Judge(c.flow)
			got := "deny"
			switch {
			case v.Inspect:
				got = "look"
			case v.Terminate || v.Requests:
				got = "more"
			case v.Ask != "" && !v.Allow:
				got = "ask"
			case v.Allow:
				got = "allow"
			}
			if got != c.want || (got == "ask" || got == "allow") && v.ByName != c.byName {
				t.Errorf("%s by name %q, want %s by %q: %+v", got, v.ByName, c.want, c.byName, v)
			}
			if v.Allow && v.Ask != "" {
				t.Errorf("both allowed and asked: %+v", v)
			}
		})
	}
}

// TestAskTarget checks that a yes to a name opens no address that the name must not lead to.
func TestAskTarget(t *testing.T) {
	p := compileAsk(t, carrel.Policy{Rules: []carrel.Rule{{Deny: []string{"198.51.100.0/24"}}, {Ask: []string{"api.example.com"}}}})
	f := policy.Flow{Addr: outside, Port: 443, App: policy.AppTLS, Name: "api.example.com", Names: []string{"api.example.com"}}
	v := p.Judge(f).Granted("somebody")
	for addr, want := range map[string]bool{"203.0.113.77": true, "10.0.0.1": false, "127.0.0.1": false, "169.254.169.254": false,
		"198.51.100.4": false, "::1": false, "64:ff9b::7f00:1": false} {
		if got := v.Permits(p.JudgeTarget(f, netip.MustParseAddr(addr))); got != want {
			t.Errorf("%s: %v, want %v", addr, got, want)
		}
	}
	if policy.Verdict.Permits(policy.Verdict{Allow: true}, p.JudgeTarget(f, outside)) {
		t.Error("a flow that nobody was asked about goes where a person must be asked")
	}
}

// TestAskRead checks the mistakes in rules that ask.
func TestAskRead(t *testing.T) {
	for text, want := range map[string]string{
		`rules: [{ask: [a.example.com], allow: [b.example.com]}]`:   "one of allow, deny and ask",
		`rules: [{ask: [a.example.com], protocol: udp}]`:            "only TCP can be held",
		`rules: [{ask: ["host.carrel.internal"], ports: [5432]}]`:   "nobody is asked about services of this host",
		`rules: [{ask: [127.0.0.1]}]`:                               "no sandbox reaches it",
		`{askSeconds: 3601}`:                                        "between 1 and 3600",
		`{askSeconds: -1}`:                                          "between 1 and 3600",
		`rules: [{allow: [a.example.com]}, {ask: [a.example.com]}]`: "can never match",
		`rules: [{ask: [a.example.com]}, {allow: [a.example.com]}]`: "asks about the same",
		`{default: ask}`:                                            "neither deny nor allow",
		`{askSeconds: 60, rules: [{ask: [a.example.com], ports: [443], limits: {connections: 3}}]}`: "",
	} {
		_, err := policy.Parse("p.yaml", []byte(text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	p := compileAsk(t, carrel.Policy{Rules: []carrel.Rule{{Ask: []string{"a.example.com"}}}})
	if p.Hold() != 2*time.Minute || !p.Asks() {
		t.Errorf("hold %v, asks %v", p.Hold(), p.Asks())
	}
	if got := p.Words()[0]; !strings.Contains(got, "ask a person about a.example.com") {
		t.Error(got)
	}
	x, err := policy.Explain(p, "GET https://a.example.com/", netip.Addr{})
	if err != nil || x.Allowed || !x.Asked || x.Steps[len(x.Steps)-1].Verdict != "ask" {
		t.Errorf("%+v, %v", x, err)
	}
	if policy.Passes(carrel.Policy{Rules: []carrel.Rule{{Ask: []string{"a.example.com"}}}}) {
		t.Error("a policy that asks needs somebody to ask")
	}
	opened := policy.Opened(carrel.Network{Policy: &carrel.Policy{Rules: []carrel.Rule{{Ask: []string{"a.example.com"}}}}})
	if !slices.Equal(opened, []policy.Asked{{Field: "policy.rules[0].ask[0]", Destination: "a.example.com"}}) {
		t.Error(opened)
	}
}

// TestAnswered checks the rule that an answer for ever becomes.
func TestAnswered(t *testing.T) {
	for name, c := range map[string]struct {
		rule  carrel.Rule
		q     carrel.Question
		allow bool
		want  []carrel.Rule // before the rule that asks
		gone  bool          // the rule that asks
		err   string
	}{
		"a name": {carrel.Rule{Ask: []string{"*"}}, carrel.Question{Host: "a.example.com", Port: 443, Protocol: "tls"}, true,
			[]carrel.Rule{{Name: "answered", Allow: []string{"a.example.com"}, Ports: []string{"443"}, Protocol: "https"}}, false, ""},
		"a database by TLS": {carrel.Rule{Ask: []string{"*"}}, carrel.Question{Host: "a.example.com", Port: 5432, Protocol: "tls"}, true,
			[]carrel.Rule{{Name: "answered", Allow: []string{"a.example.com"}, Ports: []string{"5432"}, Protocol: "https"}}, false, ""},
		"an address": {carrel.Rule{Ask: []string{"*"}, Inspect: true}, carrel.Question{Host: "203.0.113.9", Port: 22, Protocol: "tcp"}, true,
			[]carrel.Rule{{Name: "answered", Allow: []string{"203.0.113.9"}, Ports: []string{"22"}, Protocol: "tcp"}}, false, ""},
		"no": {carrel.Rule{Ask: []string{"*"}}, carrel.Question{Host: "a.example.com", Port: 443, Protocol: "tls"}, false,
			[]carrel.Rule{{Name: "answered", Deny: []string{"a.example.com"}, Ports: []string{"443"}}}, false, ""},
		"a request": {carrel.Rule{Ask: []string{"a.example.com"}, Methods: []string{"POST"}}, carrel.Question{Host: "a.example.com", Port: 443, Protocol: "https", Method: "POST", Path: "/v1/x%20y"}, true,
			[]carrel.Rule{{Name: "answered", Allow: []string{"a.example.com"}, Ports: []string{"443"}, Protocol: "https", Methods: []string{"POST"}, Paths: []string{"/v1/x y"}}}, false, ""},
		"a request with a star": {carrel.Rule{Ask: []string{"a.example.com"}, Methods: []string{"POST"}}, carrel.Question{Host: "a.example.com", Port: 443, Protocol: "https", Method: "POST", Path: "/v1/*"}, true,
			nil, false, "no rule can be written"},
		"an encoded star": {carrel.Rule{Ask: []string{"a.example.com"}, Methods: []string{"POST"}}, carrel.Question{Host: "a.example.com", Port: 443, Protocol: "https", Method: "POST", Path: "/v1/%2a"}, true,
			nil, false, "no rule can be written"},
		"all that the rule asks": {carrel.Rule{Ask: []string{"a.example.com"}, Protocol: "https", Ports: []string{"443"}}, carrel.Question{Host: "a.example.com", Port: 443, Protocol: "tls"}, true,
			[]carrel.Rule{{Name: "answered", Allow: []string{"a.example.com"}, Ports: []string{"443"}, Protocol: "https"}}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := carrel.Policy{Rules: []carrel.Rule{{Allow: []string{"first.example.com"}}, c.rule}}
			ready := compileAsk(t, p)
			ask := askText(t, ready, c.rule)
			got, err := policy.Answered(p, ask, c.allow, c.q)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("%v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := slices.Concat(p.Rules[:1], c.want)
			if !c.gone {
				want = append(want, c.rule)
			}
			if !slices.EqualFunc(got.Rules, want, equalRules) {
				t.Errorf("%+v\nwant %+v", got.Rules, want)
			}
			if len(p.Rules) != 2 {
				t.Error("the policy itself was changed")
			}
		})
	}
	if _, err := policy.Answered(carrel.Policy{}, `{"ask":["*"]}`, true, carrel.Question{Host: "a.example.com", Port: 443}); carrel.KindOf(err) != carrel.Conflict {
		t.Errorf("a rule that is gone: %v", err)
	}
}

// askText is what a verdict calls the rule that asks.
func askText(t *testing.T, p *policy.Policy, r carrel.Rule) string {
	t.Helper()
	name := r.Ask[0]
	if name == "*" {
		name = "a.example.com"
	}
	for _, f := range []policy.Flow{
		{Port: 443, Addr: outside, Names: []string{name}, App: policy.AppTLS, Name: name},
		{Port: 443, Addr: outside, Names: []string{name}, App: policy.AppHTTP, Name: name, Opened: true, ServerName: name, Method: "POST", Path: "/v1/x"},
	} {
		if v := p.Judge(f); v.Ask != "" {
			if policy.AsksRequests(v.Ask) != (len(r.Methods) > 0) {
				t.Errorf("about requests: %v", !(len(r.Methods) > 0))
			}
			return v.Ask
		}
	}
	t.Fatal("no rule asks")
	return ""
}

func equalRules(a, b carrel.Rule) bool {
	return a.Name == b.Name && slices.Equal(a.Allow, b.Allow) && slices.Equal(a.Deny, b.Deny) && slices.Equal(a.Ask, b.Ask) &&
		slices.Equal(a.Ports, b.Ports) && a.Protocol == b.Protocol && slices.Equal(a.Methods, b.Methods) && slices.Equal(a.Paths, b.Paths) && a.Inspect == b.Inspect
}
