// Package eval runs awk programs. [Run] compiles a program to closures, one for each expression and
// statement. The addresses of variables are known at that time. It then runs the closures on a
// machine that has the variables, the record and the streams.
//
// # Values
//
// A value is a number, a string, or input that has not been examined yet. Whether input is a number
// is decided only when it matters. Fields are parts of the chunk of input that contains them. They
// are copied when they are stored.
//
// # Threats
//
// Programs and their input are hostile. tool.Host.Step pays for loops, calls, records and long
// texts. tool.Host.Pay pays for variables, arrays, fields and long texts. The depth of calls is
// limited by the goroutine's stack, whose size is estimated from the depth of the functions' trees.
// Files, programs, clock and random numbers are reached only through the tool.Call.
//
// # Control flow
//
// Statements return where execution continues. A jump out of the middle of an expression unwinds
// the goroutine's stack with a panic. Such jumps are exit and next within functions, errors, and
// exhausted budgets. Only [machine.protect] recovers this panic.
package eval
