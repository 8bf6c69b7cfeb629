// Package syntax parses awk programs: POSIX awk with gawk's additions. [Parse] turns the text of a
// program into a tree. Package resolve then resolves the names.
//
// # Threats
//
// Programs are hostile. The parser limits the depth of a tree ([MaxDepth], [MaxChain]), so that
// code that walks it may use recursion.
package syntax

// MaxDepth is the deepest nesting of expressions and statements. MaxChain is the most operators of
// one level in a row: such a chain nests to the left.
const (
	MaxDepth = 1000
	MaxChain = 4000
)

// Pos is a place in a program.
type Pos struct {
	Unit int // index into Program.Units
	Line int
}

// Unit is a part of a program: a file, or text of the command line, which has no name.
type Unit struct {
	Name, Text string
}

// Error is an error in a program.
type Error struct {
	Unit   string // the unit's name, "" for the command line
	Line   int
	Source string // the source line, "" when the position in it does not help
	Column int    // in Source, in bytes, from 0
	Msg    string
	Fatal  bool // the program is well-formed but can't be run
}

// Error implements error.
func (e *Error) Error() string { return e.Msg }
