//go:build !unix

package cli

import "io/fs"

// hardLinks does nothing: this system does not show which names belong to one file.
type hardLinks struct{}

// first finds none.
func (hardLinks) first(fs.FileInfo, string) string { return "" }

// forget does nothing.
func (hardLinks) forget(fs.FileInfo) {}

// has returns false for every file.
func (hardLinks) has(fs.FileInfo) bool { return false }
