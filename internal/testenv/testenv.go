// Package testenv decides whether a test may run on this machine. A test that needs something calls
// [Need]. If it is missing, the test is skipped; but if CARREL_REQUIRE names it, as in CI, the test
// fails. The package also waits for a test: [Eventually].
package testenv

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Need skips the test if missing is not nil, and prints the reason. If the environment variable
// CARREL_REQUIRE (a list with commas) contains name or "all", the test fails instead.
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

// Long skips a test with -short that takes long or loads the machine. why says which of the two.
func Long(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("not with -short: " + why)
	}
}

// Few returns the cases of a matrix that a test goes through: all of them, and with -short the first
// n. Name those first that no other test of the short form has.
func Few[T any](n int, cases ...T) []T {
	if testing.Short() {
		return cases[:min(n, len(cases))]
	}
	return cases
}

// Inapplicable skips a case that has nothing to check here, on any machine: a part of another test
// that runs in its own process, a promise that a driver does not make, a case for another kind of
// user. For things that a machine may lack, use [Need].
func Inapplicable(t testing.TB, why string) {
	t.Helper()
	t.Skip("does not apply: " + why)
}
