package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

// writePolicy writes a policy file.
func writePolicy(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestPolicyTest(t *testing.T) {
	file := writePolicy(t, `
rules:
  - name: api
    allow: [api.example.com]
    methods: [GET]
    paths: [/v1/**]
inject:
  - host: api.example.com
    bearer: api-key
`)
	f := &fake{}
	got := f.run(t, "policy", "test", "--policy", file, "GET https://api.example.com/v1/x")
	want := `STEP         VERDICT   RULE           WHAT
name         allow     rule 1 (api)   api.example.com
connection   look      rule 1 (api)   tcp api.example.com:443
hello        open      rule 1 (api)   TLS for api.example.com
request      allow     rule 1 (api)   GET /v1/x
inject into api.example.com: bearer api-key
allowed (rule 1 (api))
`
	if got.out != want || got.code != 0 || got.err != "" {
		t.Errorf("%d\n%s\n%s\nwant\n%s", got.code, got.out, got.err, want)
	}
	for _, c := range []struct {
		args []string
		code int
		err  string
	}{
		{[]string{"--policy", file, "POST", "https://api.example.com/v1/x"}, 4, "carrel: denied (default: deny): POST https://api.example.com/v1/x is not allowed: rule 1 (api) is for GET\nhint: ask for: allow api.example.com, methods POST\n"},
		{[]string{"--policy", file, "GET https://api.example.com/v1/x", "--address", "10.0.0.5"}, 4, "carrel: denied (built-in: private address): 10.0.0.5 is private, and no rule names it for port 443\nhint: ask for: allow 10.0.0.5, ports 443\n"},
		{[]string{"--policy", file, "tcp 203.0.113.9:22"}, 4, "carrel: denied (default: deny): tcp 203.0.113.9:22 is not allowed: no rule names it\nhint: ask for: allow 203.0.113.9\n"},
		{[]string{"--policy", "github", "dns example.com"}, 4, "carrel: denied (default: deny): the name example.com is not allowed: no rule names it\nhint: ask for: allow example.com\n"},
		{[]string{"--policy", "allow", "udp 203.0.113.9:443"}, 0, ""},
		{[]string{"--sandbox", string(boxID), "https://www.example.com/"}, 4, "carrel: denied (internet: false)"},
		{[]string{"--policy", file}, 2, "arg"},
		{[]string{"dns example.com"}, 2, "give --policy or --sandbox"},
		{[]string{"--policy", file, "--sandbox", string(boxID), "dns example.com"}, 2, "give --policy or --sandbox"},
		{[]string{"--policy", file, "gopher://example.com"}, 2, "http or https"},
		{[]string{"--policy", file, "dns example.com", "--address", "x"}, 2, "no address"},
		{[]string{"--policy", "nonsense", "dns example.com"}, 3, "neither a file nor a preset"},
		{[]string{"--sandbox", string(noID), "dns example.com"}, 3, ""},
	} {
		got := f.run(t, append([]string{"policy", "test"}, c.args...)...)
		if got.code != c.code || !strings.Contains(got.err, c.err) {
			t.Errorf("%q: %d, %s", c.args, got.code, got.err)
		}
	}
	got = f.run(t, "--json", "policy", "test", "--policy", "deny", "dns example.com")
	var x policy.Explanation
	if err := json.Unmarshal([]byte(got.out), &x); err != nil || got.code != 4 || x.Allowed || len(x.Steps) != 1 || x.Hint == "" {
		t.Errorf("%d: %s (%v)", got.code, got.out, err)
	}
}

func TestPolicyCheck(t *testing.T) {
	good := writePolicy(t, "presets: [openai]\nrules: [{deny: ['*.example.com'], ports: [25]}, {allow: [203.0.113.0/24]}]\nlimits: {connections: 5}\n")
	bad := writePolicy(t, "rules:\n  - allow: [example.com]\n    prots: [443]\n")
	f := &fake{}
	got := f.run(t, "policy", "check", good)
	want := good + `:
  rule 1: deny *.example.com, port 25
  rule 2: allow 203.0.113.0/24
  preset openai: allow api.openai.com over TLS or HTTP, port 443
  default: deny: everything else is denied
  in all: 5 connections at once
`
	if got.out != want || got.code != 0 {
		t.Errorf("%d\n%s\nwant\n%s", got.code, got.out, want)
	}
	got = f.run(t, "policy", "check", bad, good)
	if got.code != 2 || got.out != want || !strings.Contains(got.err, bad+`:3:5: there is no key "prots" here`) || !strings.Contains(got.err, "hint: the keys here are") {
		t.Errorf("%d\n%s\n%s", got.code, got.out, got.err)
	}
	if got := f.run(t, "policy", "check", good+"x"); got.code != 3 {
		t.Errorf("%d: %s", got.code, got.err)
	}
}

func TestPolicyShow(t *testing.T) {
	f := &fake{}
	f.box.ID = boxID
	f.box.Network = carrel.Network{AllowOut: []string{"*.example.com"}, DenyOut: []string{"0.0.0.0/0"},
		Rules: map[string][]carrel.NetworkRule{"api.example.com": {{Transform: &carrel.NetworkTransform{Headers: map[string]string{"X-Key": "value"}}}}}}
	got := f.run(t, "policy", "show", string(boxID))
	want := `allowOut: allow *.example.com over TLS or HTTP
denyOut: deny everything
internet: false: everything else is denied
inject into api.example.com: header X-Key
`
	if got.out != want || got.code != 0 {
		t.Errorf("%d\n%s\nwant\n%s", got.code, got.out, want)
	}
	var n carrel.Network
	if got := f.run(t, "--json", "policy", "show", string(boxID)); json.Unmarshal([]byte(got.out), &n) != nil || len(n.AllowOut) != 1 {
		t.Error(got.out)
	}
}

func TestPolicyPresets(t *testing.T) {
	f := &fake{}
	if got := f.run(t, "policy", "presets"); got.code != 0 || strings.Count(got.out, "\n") != len(policy.Presets())+1 {
		t.Errorf("%d: %s", got.code, got.out)
	}
	if got := f.run(t, "policy", "presets", "github"); got.code != 0 || !strings.Contains(got.out, "preset github: allow github.com over TCP, port 22") {
		t.Errorf("%d: %s", got.code, got.out)
	}
	if got := f.run(t, "policy", "presets", "nonsense"); got.code != 3 {
		t.Errorf("%d: %s", got.code, got.err)
	}
	if got := f.run(t, "policy", "schema"); got.out != string(policy.Schema()) {
		t.Errorf("%d: %s", got.code, got.out)
	}
}

// TestPolicyDocs runs the examples of the documentation on the policy before them.
func TestPolicyDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	f, file, ran := &fake{}, "", 0
	for i, part := range strings.Split(string(page), "```") {
		if block, ok := strings.CutPrefix(part, "yaml\n"); ok && i%2 == 1 {
			file = writePolicy(t, block)
		}
		block, ok := strings.CutPrefix(part, "console\n")
		if i%2 == 0 || !ok {
			continue
		}
		for example := range strings.SplitSeq("\n"+block, "\n$ carrel ") {
			command, want, _ := strings.Cut(example, "\n")
			words := strings.SplitN(strings.Replace(command, "policy.yaml", file, 1), "'", 3)
			if command == "" {
				continue
			}
			ran++
			got := f.run(t, append(strings.Fields(words[0]), words[1:len(words)-1]...)...)
			if strings.TrimSpace(got.both) != strings.TrimSpace(want) {
				t.Errorf("%s\n%s\nwant\n%s", command, got.both, want)
			}
		}
	}
	if ran == 0 {
		t.Error("no examples")
	}
}
