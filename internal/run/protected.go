package run

import "github.com/carrel-dev/carrel/internal/settings"

// Protected reports whether a path must not be written, because of where it is or what it is called, and the rule that
// says so.
func Protected(b *settings.Box, path string) (rule string, yes bool) {
	access, r := b.Access(path)
	return r.Rule, access != settings.Writable
}

// layer is a directory whose changes are kept apart.
type layer struct{ lower, upper, work string }
