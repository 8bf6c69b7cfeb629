// Package early hands "carrel run" over to the small program inside the binary, before anything
// else of this program is initialised.
//
// The whole program contains a kernel, a database, object storage and certificates. Initialising
// their packages takes longer than running a boxed "true". Go initialises packages whose imports
// are ready in the order of their paths, so a package with almost no imports is among the first. If
// the small program can't do something (a network, another tier, help), it hands that back, and
// main does it. See docs/RATIONALE.md.
//
// It is for cmd/carrel alone: importing it hands over every command line that begins with "run".
package early

// Names in argv[0] by which the two programs recognise each other.
const (
	// Small is the small program's name. Its argv[1] is the descriptor of the whole program.
	Small = "carrel-run"
	// Whole is the whole program's name when the small one hands back.
	Whole = "carrel-whole"
)
