// Package tool is the contract between the simulated machine of package interp and its programs. A
// program is a [Command]. One run of it is a [Call].
//
// A Call has the three streams, the arguments and a [Host]. The Host is the process in which the
// program runs. A program asks only the Host for files, time, random numbers, other programs and
// the network, and never the operating system. It pays for all work in loops with [Host.Step], and
// for all memory that it keeps with [Host.Pay]: scripts are hostile, and the daemon serves other
// sandboxes.
//
// # Writing a command
//
// Read options with [Call.Flags], lines with [Call.Lines], named inputs with [Call.Inputs]. Report
// errors with [Call.Errorf], which words them as GNU's tools do. End as soon as Step returns false
// or a write fails: the process has been killed or is over a limit, or nobody reads its output any
// more.
package tool
