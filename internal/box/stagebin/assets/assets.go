// Package assets holds the program carrel-box, once it was built, and nothing that takes time to initialise:
// see package early.
package assets

import "embed"

// Files holds Program, or only the README when it was not built: so the package always compiles.
//
//go:embed *
var Files embed.FS

// Program is the program's name among Files, and Sum of a file with a hash of it.
const (
	Program = "carrel-box"
	Sum     = "carrel-box.sum"
)
