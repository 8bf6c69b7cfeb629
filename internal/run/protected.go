package run

import "github.com/carrel-dev/carrel/internal/settings"

// Protected reports whether a path must not be written because of its place or its name. It also
// returns the rule.
func Protected(b *settings.Box, path string) (rule string, yes bool) {
	access, r := b.Access(path)
	return r.Rule, access != settings.Writable
}

// layer is a directory whose changes are kept apart.
type layer struct{ lower, upper, work string }
