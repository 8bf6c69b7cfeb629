// Package build tests builds of templates against a real daemon with real sandboxes: what steps
// give, what the cache saves, what the daemon survives, and what hostile builds can't do.
package build
