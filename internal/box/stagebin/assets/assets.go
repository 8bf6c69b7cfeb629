// Package assets holds the program carrel-box, if it was built. It holds nothing that takes time to
// initialise: see package early.
package assets

import "embed"

// Files holds Program, or only the README when the program was not built. So the package always
// compiles.
//
//go:embed *
var Files embed.FS

// Program is the program's name among Files. Sum is the name of a file with the program's hash.
const (
	Program = "carrel-box"
	Sum     = "carrel-box.sum"
)
