// Package tool is the contract between the simulated machine of package sh and the programs that it can run: a program is
// a [Command], one run of it a [Call].
//
// A Call has the three streams, the arguments and a [Host], which is the process that the program runs in. The Host is all
// there is: a program asks it for files, time, random numbers, other programs and the network, and never the operating
// system. Everything a program does in a loop is paid for with [Host.Step], and everything that it keeps in memory with
// [Host.Pay]: scripts are hostile, and the daemon has other guests.
//
// # Writing a command
//
// Read options with [Call.Flags], lines with [Call.Lines], named inputs with [Call.Inputs]. Say what went wrong with
// [Call.Errorf], which words it as GNU's tools do. End as soon as Step is false or a write fails: the process has been
// killed, is over a limit, or nobody reads any more.
package tool
