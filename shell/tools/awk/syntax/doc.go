// Package syntax reads awk programs: POSIX awk with gawk's additions. [Parse] turns the text of a
// program into a tree; names are not looked up here, which is package resolve's work.
//
// # Threats
//
// Programs are hostile. The depth of a tree is bounded while it is read ([MaxDepth], [MaxChain]),
// so that whoever walks it may use recursion.
package syntax

// MaxDepth is how deep expressions and statements may nest, and MaxChain how many operators of one
// level may follow each other: a chain nests to the left.
const (
	MaxDepth = 1000
	MaxChain = 4000
)

// Pos is a place in a program.
type Pos struct {
	Unit int // index into Program.Units
	Line int
}

// Unit is a piece of a program: a file, or text of the command line, which has no name.
type Unit struct {
	Name, Text string
}

// Error is what is wrong with a program.
type Error struct {
	Unit   string // its name, "" for the command line
	Line   int
	Source string // the line as it stands, "" when the place in it says nothing
	Column int    // in Source, in bytes, from 0
	Msg    string
	Fatal  bool // the program is well-formed but can't be run
}

// Error implements error.
func (e *Error) Error() string { return e.Msg }
