package policy_test

import (
	"os"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/policy"
)

// TestDocs reads every policy in the documentation.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	schema := compileSchema(t)
	n := 0
	for i, part := range strings.Split(string(page), "```") {
		block, ok := strings.CutPrefix(part, "yaml\n")
		if i%2 == 0 || !ok || strings.HasPrefix(block, "presets:\n") { // a file of presets is no policy
			continue
		}
		n++
		if _, err := policy.Parse("docs/policy.md", []byte(block)); err != nil {
			t.Errorf("%v\n%s", err, block)
		}
		if err := schema.Validate(tree(t, block)); err != nil {
			t.Errorf("%v\n%s", err, block)
		}
	}
	if n < 5 {
		t.Errorf("%d policies found", n)
	}
}
