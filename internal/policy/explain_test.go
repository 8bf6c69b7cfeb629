package policy_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

func TestExplain(t *testing.T) {
	p := ours(t, carrel.Policy{Presets: []string{"github"}, Rules: []carrel.Rule{
		{Name: "api", Allow: []string{"api.example.com"}, Methods: []string{"GET"}, Paths: []string{"/v1/**"}},
		{Allow: []string{"www.example.com", "bücher.example"}},
		{Allow: []string{"198.51.100.0/24"}, Protocol: "udp"},
		{Deny: []string{"203.0.113.0/24"}},
	}, Inject: []carrel.Injection{{Host: "www.example.com", Bearer: "key"}}})
	for _, c := range []struct {
		query, at string
		steps     string // verdicts
		rule      string
		allowed   bool
	}{
		{"GET https://api.example.com/v1/x?y=z", "", "name allow, connection look, hello open, request allow", "rule 1 (api)", true},
		{"https://api.example.com/v1/x", "", "name allow, connection look, hello open, request allow", "rule 1 (api)", true},
		{"wss://api.example.com/v1/x", "192.0.2.1", "name allow, connection look, hello open, request allow", "rule 1 (api)", true},
		{"DELETE https://API.example.com./v1/x", "", "name allow, connection look, hello open, request deny", "default: deny", false},
		{"GET https://api.example.com/v1/../x", "", "name allow, connection look, hello open, request deny", "rule 1 (api)", false},
		{"GET http://api.example.com:8080/v1/", "", "name allow, connection look, HTTP requests, request allow", "rule 1 (api)", true},
		{"GET https://www.example.com/", "", "name allow, connection look, hello open, request allow", "rule 2", true},
		{"GET https://www.example.com/", "127.0.0.1", "name allow, connection deny", "built-in: this host", false},
		{"GET https://www.example.com/", "203.0.113.7", "name allow, connection look, hello open, request allow", "rule 2", true},
		{"https://bücher.example", "", "name allow, connection look, hello allow", "rule 2", true},
		{"tls www.example.com:993", "", "name allow, connection look, hello open", "rule 2", true},
		{"tcp www.example.com:22", "", "name allow, connection look, bytes deny", "default: deny", false},
		{"tcp github.com:22", "", "name allow, connection allow", "preset github", true},
		{"udp www.example.com:443", "", "name allow, connection deny", "default: deny", false},
		{"udp 198.51.100.3:53", "", "connection allow", "rule 3", true},
		{"tcp 198.51.100.3:53", "", "connection deny", "default: deny", false},
		{"tcp [2001:db8::1]:53", "", "connection deny", "default: deny", false},
		{"https://203.0.113.7/", "", "connection deny", "rule 4", false},
		{"dns www.example.com", "", "name allow", "rule 2", true},
		{"dns www.example.net.", "", "name deny", "default: deny", false},
		{"GET https://evil.example/", "", "name deny", "default: deny", false},
	} {
		var at netip.Addr
		if c.at != "" {
			at = netip.MustParseAddr(c.at)
		}
		x, err := policy.Explain(p, c.query, at)
		if err != nil {
			t.Errorf("%s: %v", c.query, err)
			continue
		}
		var steps []string
		for _, s := range x.Steps {
			steps = append(steps, s.Step+" "+s.Verdict)
			if s.Rule == "" || s.What == "" {
				t.Errorf("%s: %+v", c.query, s)
			}
		}
		if got := strings.Join(steps, ", "); got != c.steps || x.Allowed != c.allowed || x.Rule != c.rule || x.Allowed != (x.Reason == "") {
			t.Errorf("%s: %s\n%+v", c.query, got, x)
		}
		if inject := strings.HasPrefix(c.query, "GET https://www.example.com") && c.allowed; inject != (x.Inject != "") {
			t.Errorf("%s: injects %q", c.query, x.Inject)
		}
	}
	for _, q := range []string{"", "x", "a b c", "GET ftp://example.com", "tcp example.com", "tcp example.com:0", "udp :53", "dns", "dns a..b", "GE T/ x", "GET(/ https://example.com", "https://exa mple.com/", "https://127.1/", "https:///x", "tcp 1.2.3.4.5:6", "GET https://example.com:99999/"} {
		if x, err := policy.Explain(p, q, netip.Addr{}); !errors.Is(err, carrel.Invalid) {
			t.Errorf("%q: %+v, %v", q, x, err)
		}
	}
}

func TestDescribe(t *testing.T) {
	for want, n := range map[string]carrel.Network{
		"internet: false: nothing is allowed": {},
		"default: deny: nothing is allowed":   {Policy: &carrel.Policy{}},
		"internet: true: everything else is allowed, but for this host, link-local and private addresses\nTCP goes through the SOCKS5 proxy example.com:1080": {
			Internet: true, EgressProxy: &carrel.EgressProxy{Address: "example.com:1080", Username: "me", Password: "secret"}},
		`nothing is allowed: check policy: allowOut[0]: invalid allowed address ""`: {AllowOut: []string{""}},
		`rule 1 (all of it): allow *.example.com, 203.0.113.0/24, 203.0.113.9, example.com over HTTP without TLS, port 80, 8000-8999, GET on /a/**; at most 3 connections at once, 0.5 requests per second, 10 bytes per second out
rule 2: deny everything over UDP
default: allow: everything else is allowed, but for this host, link-local and private addresses
inject into example.com: basic me with password, header X-A, parameter key, for POST on /x, also without TLS`: {Policy: &carrel.Policy{Default: "allow",
			Rules: []carrel.Rule{{Name: "all of it", Allow: []string{"example.com", "*.example.com", "203.0.113.9", "203.0.113.0/24"}, Ports: []string{"80", "8000-8999"}, Protocol: "http",
				Methods: []string{"GET"}, Paths: []string{"/a/**"}, Limits: carrel.TrafficLimits{Connections: 3, RequestsPerSecond: 0.5, SendBytesPerSecond: 10}}, {Deny: []string{"*"}, Protocol: "udp"}},
			Inject: []carrel.Injection{{Host: "example.com", Methods: []string{"POST"}, Paths: []string{"/x"}, Basic: &carrel.BasicAuth{User: "me", Secret: "password"},
				Headers: map[string]string{"X-A": "the-value"}, Query: map[string]string{"key": "the-value"}, Cleartext: true}}}},
	} {
		got := strings.Join(policy.Describe(n), "\n")
		if got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		if strings.Contains(got, "the-value") || strings.Contains(got, "secret") {
			t.Error("a value is told")
		}
	}
}
