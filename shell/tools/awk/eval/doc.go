// Package eval runs awk programs. [Run] compiles a program to closures, one for each expression and
// statement, whose variables are places that are known then, and runs them on a machine that has
// the variables, the record and the streams.
//
// # Values
//
// A value is a number, a string, or what came from outside and has not been looked at yet: whether
// that is a number is decided when it matters. Fields are parts of the chunk of input that they
// were read in, and are copied when they are stored.
//
// # Threats
//
// Programs and their input are hostile. Loops, calls, records and long texts are paid for by
// tool.Host.Step, variables, arrays, fields and long texts by tool.Host.Pay. Calls nest as deep as
// the goroutine's stack may grow, which is estimated from the depth of the functions' trees.
// All ways out, files, programs, clock and random numbers, lead through the tool.Call.
//
// # Control flow
//
// Statements return where to go on. What leaves an expression in the middle unwinds the goroutine's
// stack by a panic, which ends in [machine.protect] and nowhere else: exit and next within functions,
// errors, and budgets that are used up.
package eval
