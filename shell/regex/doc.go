// Package regex has the regular expressions of the simulated machine. POSIX basic and extended
// expressions with GNU's additions are matched leftmost-longest. Perl's are matched leftmost-first,
// with look-around, back-references, lazy, atomic and possessive repetition, named groups and \K.
//
// # How it matches
//
// A pattern is compiled to instructions over bytes. Characters are UTF-8; a byte that is not part
// of a character matches only itself. [Regexp.Match] and the positions of matches use automata that
// are built during the search, in time linear in the text. Submatches are then computed only for
// the matched text, by a backtracker that visits no state twice. Where that would need too much
// memory, a simulation of all states at once does it. Only patterns with back-references,
// look-around, atomic groups or \K need true backtracking.
//
// # Threats
//
// Patterns and texts are hostile. There are limits on the depth of parsing, the size of programs,
// the memory of automata (a few MiB, after which they start again) and the steps of backtracking.
// Over the last limit a search fails with [ErrTooHard]. All work is paid for through
// [Regexp.Budget], so that the caller can be stopped at any time.
//
// # Concurrency
//
// A [Regexp] builds its automata during searches. Only one goroutine at a time may use it.
package regex
