// Package callback carries calls of [carrel.Program] over a connection, from the process with the
// sandbox to the process that provides the program. [Relay] is the sandbox's end, [Answer] the
// provider's.
//
// # The stream
//
// Each frame is a letter, the length of its contents as four bytes, big-endian, and the contents.
// From the provider:
//
//	o, e  bytes for standard output, standard error
//	r     a number of four bytes: that many bytes of standard input are wanted, one read
//	f     a JSON request for a file
//	x     the exit status, four bytes; the last frame
//
// To the provider: c (the call as JSON; it is the first frame, if the call is not known from
// elsewhere), i (bytes that were read, none at the end of the input), F (the JSON answer about a
// file). Input is read only when the program asks, so a program that does not read leaves all input
// to the next one. The end of the connection is the end of the call: for the provider the process
// was killed; for the sandbox the provider has gone.
//
// Neither end trusts the other further than that: lengths are checked before memory is allocated,
// and an unexpected frame ends the call.
package callback
