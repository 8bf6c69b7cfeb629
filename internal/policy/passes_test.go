package policy_test

import (
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

// TestPasses shows which policies can be carried by another process: only those about which a
// sandbox needs to know nothing before it starts.
func TestPasses(t *testing.T) {
	hosts := carrel.Rule{Allow: []string{"example.com", "*.example.org"}}
	for name, c := range map[string]struct {
		policy carrel.Policy
		want   bool
	}{
		"nothing allowed": {carrel.Policy{}, true},
		"hosts":           {carrel.Policy{Rules: []carrel.Rule{{Deny: []string{"bad.example.org"}}, hosts}}, true},
		"everything":      {carrel.Policy{Default: "allow"}, true},
		"paths":           {carrel.Policy{Rules: []carrel.Rule{{Allow: []string{"example.com"}, Paths: []string{"/x/*"}}}}, false},
		"methods":         {carrel.Policy{Rules: []carrel.Rule{{Allow: []string{"example.com"}, Methods: []string{"GET"}}}}, false},
		"a secret":        {carrel.Policy{Rules: []carrel.Rule{hosts}, Inject: []carrel.Injection{{Host: "example.com", Bearer: "TOKEN"}}}, false},
		"not valid":       {carrel.Policy{Rules: []carrel.Rule{{}}}, false},
	} {
		if got := policy.Passes(c.policy); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
