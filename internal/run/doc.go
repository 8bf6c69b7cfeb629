// Package run is "carrel run": one command in a box on this machine, with no daemon and no root.
//
// # The story
//
// The flags are the strongest layer of package settings, which decides what the box is like. [Run] turns
// the decision into walls (package box on Linux, a Seatbelt profile on macOS, a sandbox of another tier when one was asked
// for), puts the command between them, and then stays out of the way: streams, terminal, signals and exit status are
// the command's. What the walls refused is said at the end.
//
// # Speed
//
// Most commands that an agent runs take milliseconds, so this package is on a fast path: cmd/carrel runs it from an
// init function, before the packages that the daemon needs are initialised ([Quick]). It must not import them: what
// needs the wire or another tier comes in through [Deps], and where Deps are missing Run says that it
// can't, before it has done anything.
package run
