// Package run is "carrel run": one command in a box on this machine, with no daemon and no root.
//
// # The story
//
// The flags are the strongest layer of package settings, which decides about the box. [Run] turns
// the decisions into walls (package box on Linux, a Seatbelt profile on macOS, a sandbox if the
// user asks for another tier) and puts the command between them. Then it does not interfere:
// streams, terminal, signals and exit status are the command's. At the end it reports what the
// walls refused.
//
// # Speed
//
// Most commands that an agent runs take milliseconds, so this package is on a fast path: cmd/carrel
// runs it from an init function, before the daemon's packages are initialised ([Quick]). It must
// not import those packages. The wire and other tiers come in through [Deps]. If Deps lack
// something, Run returns an error before it has done anything.
package run
