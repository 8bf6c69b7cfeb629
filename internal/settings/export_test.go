package settings

import "testing"

// LowerSearch makes searches end after some entries, for one test.
func LowerSearch(t *testing.T, entries int) {
	before := maxEntries
	maxEntries = entries
	t.Cleanup(func() { maxEntries = before })
}

// LooksSRT is looksSRT, for tests.
var LooksSRT = looksSRT

// SecretEnv returns the reason why the built-in list strips a variable.
func SecretEnv(name, value string) string { return new(resolver).secretEnv(name, value) }
