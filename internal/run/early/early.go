// Package early hands "carrel run" to the small program that the binary carries, before anything else
// of this program is initialised.
//
// The whole program holds a kernel, a database, object storage and certificates, and initialising their packages takes longer than
// a boxed "true" takes to run. Go initialises packages whose imports are ready in the order of their paths, so a package that
// imports next to nothing is among the first. What the small program can't do (a network, another tier, help) it
// hands back, and main does it. See docs/RATIONALE.md.
//
// It is for cmd/carrel alone: importing it hands over a command line that begins with "run".
package early

// Names in argv[0] that the two programs know each other by.
const (
	// Small is what the small program is called; its argv[1] is the descriptor of the whole one.
	Small = "carrel-run"
	// Whole is what the whole program is called when the small one hands back.
	Whole = "carrel-whole"
)
