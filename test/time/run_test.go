package time

import (
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
)

// run runs a line in a sandbox and returns its output. The line must succeed.
func run(t *testing.T, c carrel.Computer, line string) string {
	t.Helper()
	res, err := c.Run(t.Context(), carrel.Command{Shell: line})
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	if res.ExitCode != 0 {
		t.Fatalf("%s: %s\n%s%s", line, res.Status, res.Stdout, res.Stderr)
	}
	return strings.TrimSpace(string(res.Stdout))
}
