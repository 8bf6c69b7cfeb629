// Package interp is a simulated Linux machine for programs written in bash: an
// interpreter of our own for a large useful part of bash, and the usual small
// tools, on the filesystem of package vfs.
//
// A [Machine] has users, a host name, processes, pipes and terminals, and none
// of them exists outside it. [Machine.Start] runs a command line as a process
// with a virtual pid; subshells, pipeline members and background jobs become
// processes of their own (goroutines), with process groups and signals. The
// grammar is parsed by mvdan.cc/sh/v3/syntax; nothing else of that module is
// used, since its interpreter reaches the host.
//
// # Threats
//
// Scripts are hostile. This package and vfs make no system call: they import
// neither os nor os/exec nor net, and a test holds them to it. What a script can
// reach is what its Machine was given, so the wall is the Go language itself.
//
// Scripts must not exhaust the daemon either. Each of these is bounded, and
// reaching the bound ends the process with a message that names it: processes at
// once, bytes held by variables and buffers, bytes of output, steps, depth of
// calls, and depth of nesting in the source. The last is measured while parsing,
// on the parser's own stack, so that no disagreement between two readings of
// the grammar can get round it.
//
// # Limits of the simulation
//
// There are no real programs: what is not among our own is "command not found".
// Regular expressions run in linear time, or by bounded steps where they refer back;
// a tool that is asked for something it can't do says so and fails.
//
// # Concurrency
//
// Machine, [Process] and [TTY] are safe for concurrent use. Every goroutine
// belongs to the Machine: [Machine.Close] ends and awaits them all.
package interp
