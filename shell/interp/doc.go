// Package interp is a simulated Linux machine for programs written in bash. It has its own
// interpreter for a large useful part of bash, and the usual small tools. Files are on the
// filesystem of package vfs.
//
// A [Machine] has users, a host name, processes, pipes and terminals. None of them exists outside
// the machine. [Machine.Start] runs a command line as a process with a virtual pid. Subshells,
// pipeline members and background jobs are processes too (goroutines), with process groups and
// signals. The module mvdan.cc/sh/v3/syntax parses the grammar. Nothing else of that module is
// used, because its interpreter reaches the host.
//
// # Threats
//
// Scripts are hostile. This package and vfs make no system call: they do not import os, os/exec or
// net, and a test checks this. A script can reach only the things that its Machine was given. The
// isolation is that of the Go language.
//
// Scripts must not exhaust the daemon either. Each of these has a limit: processes at once, bytes
// held by variables and buffers, bytes of output, steps, depth of calls, and depth of nesting in
// the source. A process that reaches a limit ends with a message that names it. The depth of
// nesting is measured during parsing, on the parser's own stack. A second reading of the grammar
// could disagree with the parser, and a script could use that to get round the limit.
//
// # Limits of the simulation
//
// There are no real programs: a program that this machine does not have is "command not found".
// Regular expressions run in linear time, or in bounded steps if they have back-references. A tool
// that does not support a request says so and fails.
//
// # Concurrency
//
// Machine, [Process] and [TTY] are safe for concurrent use. Every goroutine belongs to the Machine:
// [Machine.Close] ends them and waits for them.
package interp
