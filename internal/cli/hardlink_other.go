//go:build !unix

package cli

import "io/fs"

// hardLinks would remember the names of files that have several: they can't be told here.
type hardLinks struct{}

// first finds none.
func (hardLinks) first(fs.FileInfo, string) string { return "" }

// forget does nothing.
func (hardLinks) forget(fs.FileInfo) {}

// has tells no file by its names.
func (hardLinks) has(fs.FileInfo) bool { return false }
