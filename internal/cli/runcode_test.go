package cli

import (
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
)

// TestRunCodeRefusals gives run-code and notebook what they can't do anything with.
func TestRunCodeRefusals(t *testing.T) {
	id := string(boxID)
	simulated := carrel.Sandbox{ID: boxID, State: carrel.Running, Tier: carrel.Sim}
	for _, c := range []struct {
		name string
		args []string
		say  string
	}{
		{"no code", []string{"run-code", id}, "one cell of code"},
		{"sandbox and template", []string{"run-code", "-t", "base", id, "1"}, "one cell of code"},
		{"no sandbox", []string{"notebook"}, "give a sandbox"},
		{"context and language", []string{"run-code", "--context", "c", "-l", "bash", id, "1"},
			"only one of them"},
		{"bad variable", []string{"run-code", "-e", "=", id, "1"}, "--env"},
		{"bad pictures", []string{"run-code", "--pictures", "braille", id, "1"}, "braille"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := (&fake{box: simulated}).run(t, c.args...)
			if got.code == 0 || !strings.Contains(got.err, c.say) {
				t.Errorf("status %d: %s", got.code, got.err)
			}
		})
	}
}
