package policy_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

// query is the question to [policy.Explain] about what a decision allowed.
func query(d carrel.Decision) string {
	host := d.Name
	if host == "" {
		host = d.Address
	}
	at := fmt.Sprintf("%s:%d", host, d.Port)
	switch {
	case d.Method != "":
		return d.Method + " " + d.Protocol + "://" + at + d.Path
	case d.Protocol == "dns":
		return "dns " + host
	}
	return d.Protocol + " " + at
}

// learn learns from decisions, and checks that the policy is a valid file.
func learn(t *testing.T, o policy.LearnOptions, all ...carrel.Decision) (policy.Learned, *policy.Policy) {
	t.Helper()
	l := policy.NewLearner(o)
	for _, d := range all {
		l.Add(d)
	}
	out := l.Learned()
	text, err := out.YAML()
	if err != nil {
		t.Fatal(err)
	}
	again, err := policy.Parse("learned", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	ready, err := policy.Compile(carrel.Network{Policy: &again})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if len(again.Rules) != len(out.Policy.Rules) || len(out.Seen) != len(again.Rules) {
		t.Fatalf("%d rules, %d in the file, %d explained\n%s", len(out.Policy.Rules), len(again.Rules), len(out.Seen), text)
	}
	return out, ready
}

// permits reports whether a policy allows something.
func permits(t *testing.T, p *policy.Policy, question, address string) bool {
	t.Helper()
	at, _ := netip.ParseAddr(address)
	x, err := policy.Explain(p, question, at)
	if err != nil {
		t.Fatalf("%s: %v", question, err)
	}
	return x.Allowed
}

func visit(method, host, path string) carrel.Decision {
	return carrel.Decision{Allowed: true, Protocol: "https", Name: host, Address: "203.0.113.9", Port: 443,
		Method: method, Path: path, Rule: "rule 1", Process: "curl"}
}

// TestLearn checks what is learned from what, and that the policy allows nothing near it.
func TestLearn(t *testing.T) {
	var pages, versions, many []carrel.Decision
	for i := range 20 {
		pages = append(pages, visit("GET", "a.example.com", fmt.Sprintf("/items/%d/text", 7000+i)))
		versions = append(versions, visit("GET", "a.example.com", fmt.Sprintf("/pkg/-/pkg-%c.tgz", 'a'+i)))
		many = append(many, visit("GET", "a.example.com", fmt.Sprintf("/%c/x/%c", 'a'+i, 'a'+i)))
	}
	tls := carrel.Decision{Allowed: true, Protocol: "tls", Name: "A.Example.com.", Address: "203.0.113.9", Port: 8443, Rule: "default"}
	ssh := carrel.Decision{Allowed: true, Protocol: "tcp", Name: "git.example.com", Address: "203.0.113.5", Port: 22, Rule: "default"}
	refused := carrel.Decision{Protocol: "dns", Name: "b.example.com", Method: "A", Rule: "default: deny"}
	for name, c := range map[string]struct {
		seen      []carrel.Decision
		opts      policy.LearnOptions
		rules     []string // as text
		yes, no   []string
		note      string
		inAddress string
	}{
		"nothing": {no: []string{"GET https://a.example.com/"}},
		"one request": {seen: []carrel.Decision{visit("GET", "a.example.com", "/v1/users")},
			rules: []string{"[a.example.com] [443] https [GET] [/v1/users]"},
			yes:   []string{"GET https://a.example.com/v1/users?x=y"},
			no: []string{"POST https://a.example.com/v1/users", "GET https://a.example.com/v1/keys", "GET http://a.example.com/v1/users",
				"GET https://b.example.com/v1/users", "GET https://a.example.com:8443/v1/users", "dns b.example.com", "tcp 203.0.113.9:22"}},
		"numbers are parts": {seen: pages, rules: []string{"[a.example.com] [443] https [GET] [/items/*/text]"},
			yes: []string{"GET https://a.example.com/items/1/text"}, no: []string{"GET https://a.example.com/items/1/key", "GET https://a.example.com/items/1/2/text"}},
		"many parts are any": {seen: versions, rules: []string{"[a.example.com] [443] https [GET] [/pkg/-/*]"},
			no: []string{"GET https://a.example.com/pkg/x/y"}},
		"many at two places": {seen: many, rules: []string{"[a.example.com] [443] https [GET] [/*/x/*]"}},
		"methods apart": {seen: []carrel.Decision{visit("GET", "a.example.com", "/a"), visit("POST", "a.example.com", "/b")},
			rules: []string{"[a.example.com] [443] https [GET] [/a]", "[a.example.com] [443] https [POST] [/b]"},
			no:    []string{"POST https://a.example.com/a"}},
		"a path that nobody can judge": {seen: []carrel.Decision{visit("GET", "a.example.com", "/a//b"), visit("POST", "a.example.com", "/c")},
			rules: []string{"[a.example.com] [443] https [GET] []", "[a.example.com] [443] https [POST] [/c]"},
			yes:   []string{"GET https://a.example.com/x"}, no: []string{"POST https://a.example.com/x"}},
		"not looked into": {seen: []carrel.Decision{tls}, rules: []string{"[a.example.com] [8443] https [] []"},
			yes: []string{"tls a.example.com:8443"}, no: []string{"tls a.example.com:443"}, note: "inspect shows"},
		"both": {seen: []carrel.Decision{tls, {Allowed: true, Protocol: "https", Name: "a.example.com", Port: 8443, Method: "GET", Path: "/", Rule: "x"}},
			rules: []string{"[a.example.com] [8443] https [] []"}, note: "inspect shows"},
		"hosts alone": {seen: pages, opts: policy.LearnOptions{Hosts: true}, rules: []string{"[a.example.com] [443] https [] []"}},
		"hosts together": {seen: []carrel.Decision{visit("GET", "b.example.com", "/"), visit("GET", "a.example.com", "/")},
			rules: []string{"[a.example.com b.example.com] [443] https [GET] [/]"}},
		"ssh": {seen: []carrel.Decision{ssh}, rules: []string{"[git.example.com] [22] tcp [] []"}, yes: []string{"tcp git.example.com:22"}},
		"an address": {seen: []carrel.Decision{{Allowed: true, Protocol: "tls", Address: "203.0.113.5", Port: 443, Rule: "x"}},
			rules: []string{"[203.0.113.5] [443] tcp [] []"}, yes: []string{"tls 203.0.113.5:443"}},
		"a private one": {seen: []carrel.Decision{{Allowed: true, Protocol: "tcp", Name: "db.example.com", Address: "10.1.2.3", Port: 5432, Rule: "x"}},
			rules: []string{"[db.example.com 10.1.2.3] [5432] tcp [] []"}, yes: []string{"tcp db.example.com:5432"}, inAddress: "10.1.2.3"},
		"the host's service": {seen: []carrel.Decision{{Allowed: true, Protocol: "tcp", Name: policy.HostName, Address: "10.73.0.4", Port: 5432, Rule: "x"}},
			rules: []string{"[host.carrel.internal] [5432]  [] []"}},
		"time": {seen: []carrel.Decision{{Allowed: true, Protocol: "udp", Name: "ntp.example.com", Address: "203.0.113.6", Port: 123, Rule: "x"}},
			rules: []string{"[ntp.example.com] [123] udp [] []"}, yes: []string{"udp ntp.example.com:123"}},
		"QUIC": {seen: []carrel.Decision{{Allowed: true, Protocol: "udp", Name: "a.example.com", Address: "203.0.113.6", Port: 443, Rule: "x"}},
			note: "QUIC"},
		"a name alone":   {seen: []carrel.Decision{{Allowed: true, Protocol: "dns", Name: "a.example.com", Rule: "x"}}},
		"refused":        {seen: []carrel.Decision{refused}, note: "--denied"},
		"refused, taken": {seen: []carrel.Decision{refused}, opts: policy.LearnOptions{Denied: true}, rules: []string{"[b.example.com] []  [] []"}, yes: []string{"GET https://b.example.com/"}},
		"refused for ever": {seen: []carrel.Decision{{Protocol: "tcp", Address: "169.254.169.254", Port: 80, Rule: "built-in: metadata"}},
			opts: policy.LearnOptions{Denied: true}, note: "no rule opens it"},
		"a log with gaps": {seen: []carrel.Decision{{Allowed: true, Rule: "audit: 3 events lost"}}, note: "lost"},
	} {
		t.Run(name, func(t *testing.T) {
			out, p := learn(t, c.opts, c.seen...)
			var rules []string
			for _, r := range out.Policy.Rules {
				rules = append(rules, fmt.Sprintf("%v %v %s %v %v", r.Allow, r.Ports, r.Protocol, r.Methods, r.Paths))
			}
			if !slices.Equal(rules, c.rules) {
				t.Errorf("%q, want %q", rules, c.rules)
			}
			for _, q := range c.yes {
				if !permits(t, p, q, c.inAddress) {
					t.Errorf("%s is refused", q)
				}
			}
			for _, q := range c.no {
				if permits(t, p, q, "") {
					t.Errorf("%s is allowed", q)
				}
			}
			if got := strings.Join(out.Notes, "\n"); !strings.Contains(got, c.note) || c.note == "" && got != "" {
				t.Errorf("the notes are %q, want %q", got, c.note)
			}
		})
	}
}

// TestLearnAnything learns from random traffic: the policy allows all of it again.
func TestLearnAnything(t *testing.T) {
	words := []string{"v1", "users", "7", "0b5f3a6e-1c2d-4e5f-8a9b-0c1d2e3f4a5b", "a*b", "x.y", "-", "1.2.3", "long" + strings.Repeat("x", 60), "é", "%20"}
	for round := range 300 {
		r := rand.New(rand.NewPCG(uint64(round), 1))
		var all []carrel.Decision
		for range 1 + r.IntN(80) {
			d := visit([]string{"GET", "POST", "PUT", "DELETE", "PATCH"}[r.IntN(5)], fmt.Sprintf("h%d.example.com", r.IntN(4)), "")
			for range 1 + r.IntN(15) {
				d.Path += "/" + words[r.IntN(len(words))]
			}
			if r.IntN(4) == 0 {
				d.Path += "/"
			}
			d.Protocol = []string{"http", "https"}[r.IntN(2)]
			d.Port = []uint16{80, 443, 8080}[r.IntN(3)]
			switch r.IntN(20) {
			case 0:
				d.Protocol, d.Method, d.Path = "tls", "", ""
			case 1:
				d.Protocol, d.Method, d.Path = "tcp", "", ""
			}
			all = append(all, d)
		}
		_, p := learn(t, policy.LearnOptions{}, all...)
		for _, d := range all {
			if !permits(t, p, query(d), "") {
				t.Fatalf("round %d: %s is refused", round, query(d))
			}
		}
		if permits(t, p, "GET https://other.example.com/v1", "") {
			t.Fatalf("round %d: another host is allowed", round)
		}
	}
}

// TestLearnHostile lets a program fill the log with what should not get into a file or a terminal,
// and with more than a policy may have.
func TestLearnHostile(t *testing.T) {
	var all []carrel.Decision
	for i := range 2000 {
		d := visit(fmt.Sprint("M", i%50), fmt.Sprintf("h%d.example.com", i%400), strings.Repeat("/x", 1000)+fmt.Sprint(i))
		d.Process = "curl\n  - allow: ['*']\n\x1b[2J\u2028" + fmt.Sprint(i)
		all = append(all, d)
	}
	all = append(all, carrel.Decision{Allowed: true, Protocol: "tls", Name: "a\n- allow: ['*']", Address: "203.0.113.1", Port: 443, Rule: "x"})
	for i := range 5000 {
		all = append(all, carrel.Decision{Allowed: true, Protocol: "udp", Port: 443, Rule: "x",
			Name: fmt.Sprintf("q%d.example.com", i), Address: "203.0.113.1"})
	}
	out, p := learn(t, policy.LearnOptions{}, all...)
	if len(out.Notes) > 310 {
		t.Errorf("%d notes", len(out.Notes))
	}
	text, err := out.YAML()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.ContainsAny(line, "\x1b\u2028\r") || strings.Contains(line, "'*'") && !strings.HasPrefix(strings.TrimSpace(line), "#") {
			t.Fatalf("%q", line)
		}
	}
	if permits(t, p, "GET https://other.example.com/", "") || len(out.Policy.Rules) > 1000 {
		t.Errorf("another host is allowed, or there are too many rules: %d", len(out.Policy.Rules))
	}
	if !strings.Contains(strings.Join(out.Notes, "\n"), "more than 300") {
		t.Errorf("%q", out.Notes)
	}
}
