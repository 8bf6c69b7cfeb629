package settings

import "testing"

// LowerSearch makes searches end after some entries, for one test.
func LowerSearch(t *testing.T, entries int) {
	before := maxEntries
	maxEntries = entries
	t.Cleanup(func() { maxEntries = before })
}

// LooksSRT is how a file is told to be sandbox-runtime's.
var LooksSRT = looksSRT

// SecretEnv says why the built-in list strips a variable.
func SecretEnv(name, value string) string { return new(resolver).secretEnv(name, value) }
