// Package testenv decides whether a test may run on this machine. A test that
// needs something calls [Need]; where CARREL_REQUIRE names that something, as it
// does in CI, its absence is a failure and not a skip.
package testenv

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Need skips the test when missing is not nil, saying what is missing; it fails
// the test instead when the environment variable CARREL_REQUIRE (a comma list)
// holds name or "all".
func Need(t testing.TB, name string, missing error) {
	t.Helper()
	if missing == nil {
		return
	}
	required := strings.Split(os.Getenv("CARREL_REQUIRE"), ",")
	if slices.Contains(required, name) || slices.Contains(required, "all") {
		t.Fatalf("%s is required here (CARREL_REQUIRE) but missing: %v", name, missing)
	}
	t.Skipf("needs %s, missing here: %v", name, missing)
}
