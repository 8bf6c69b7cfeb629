// Package testenv decides whether a test may run on this machine. A test that
// needs something calls [Need]; where CARREL_REQUIRE names that something, as it
// does in CI, its absence is a failure and not a skip. It also waits for a
// test: [Eventually].
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

// Long skips a test that takes long, or loads the machine, when -short is given. why says which.
func Long(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("not with -short: " + why)
	}
}

// Inapplicable skips a case that has nothing to check here, whatever the machine has: a part of another test that runs in a process of
// its own, a promise that a driver does not make, a case for another kind of user. What a machine could have and lacks is for [Need].
func Inapplicable(t testing.TB, why string) {
	t.Helper()
	t.Skip("does not apply: " + why)
}
