package run

import (
	"path/filepath"
	"strings"

	"github.com/carrel-dev/carrel/internal/settings"
)

// Protected reports whether a path must not be written whatever directory it is in, and the rule that says so.
func Protected(b *settings.Box, path string) (rule string, yes bool) {
	if access, r := b.Access(path); access != settings.Writable {
		return r.Rule, true
	}
	for _, p := range b.Protected {
		if protects(b, p, path) {
			return p.Rule, true
		}
	}
	return "", false
}

// protects reports whether one pattern names path or something above it.
func protects(b *settings.Box, p settings.Protected, path string) bool {
	if filepath.IsAbs(p.Pattern) {
		return matchBelow(p.Pattern, path)
	}
	for _, r := range b.Paths {
		if r.Access != settings.Writable || path == r.Path || !strings.HasPrefix(path, r.Path+"/") {
			continue
		}
		for rel, dir := path[len(r.Path)+1:], r.Path; ; {
			if matchBelow(dir+"/"+p.Pattern, path) {
				return true
			}
			first, rest, more := strings.Cut(rel, "/")
			if !p.Deep || !more || first == "node_modules" {
				break
			}
			dir, rel = dir+"/"+first, rest
		}
	}
	return false
}

// matchBelow reports whether path, or a directory above it, matches a pattern.
func matchBelow(pattern, path string) bool {
	n := strings.Count(pattern, "/")
	parts := strings.Split(path, "/")
	if len(parts) < n+1 {
		return false
	}
	ok, err := filepath.Match(pattern, strings.Join(parts[:n+1], "/"))
	return err == nil && ok
}

// layer is a directory whose changes are kept apart.
type layer struct{ lower, upper, work string }
