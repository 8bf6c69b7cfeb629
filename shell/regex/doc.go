// Package regex has the regular expressions of the simulated machine: POSIX basic and extended ones with GNU's additions,
// matched leftmost-longest, and Perl's, matched leftmost-first, with look-around, back-references, lazy, atomic and
// possessive repetition, named groups and \K.
//
// # How it matches
//
// A pattern is compiled to instructions over bytes (characters are UTF-8; a byte that is none matches nothing but itself).
// [Regexp.Match] and the places of matches come from automata that are built while they run, in time linear in the text.
// Submatches are then read from the place alone, by a backtracker that visits no state twice, or by a simulation that keeps
// all states side by side where that would take too much room. Only patterns with back-references, look-around, atomic
// groups or \K are matched by true backtracking.
//
// # Threats
//
// Patterns and texts are hostile. Parsing is bounded in depth, programs in size, automata in memory (a few MiB, after which
// they begin anew), and backtracking in steps: past the bound a search fails with [ErrTooHard]. All work is paid for through
// [Regexp.Budget], so that the one who asked may be stopped at any time.
//
// # Concurrency
//
// A [Regexp] builds its automata as it goes and belongs to one goroutine at a time.
package regex
