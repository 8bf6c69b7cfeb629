// Package callback carries calls of [carrel.Program] over a connection: to the process that provides the program from the one
// that has the sandbox. [Relay] is the sandbox's end, [Answer] the provider's.
//
// # The stream
//
// Frames: a letter, the length of what follows as four bytes, big-endian, and that. From the provider:
//
//	o, e  bytes for standard output, standard error
//	r     a number of four bytes: that many bytes of standard input are wanted, one read
//	f     a JSON request for a file
//	x     the exit status, four bytes; the last frame
//
// To the provider: c (the call as JSON, where it is not known from elsewhere: the first frame), i (bytes that were read, none at
// the end of the input), F (the JSON answer about a file). Input is read only when the program asks, so that a program that does
// not read takes nothing away from who comes after it. The connection's end is the end of the call: for the provider, the process
// was killed; for the sandbox, the provider has gone.
//
// Neither end trusts the other further than that: lengths are bounded before memory is taken, and what comes out of turn ends
// the call.
package callback
