// Package quickjs runs JavaScript in QuickJS, a small interpreter for ES2023, which is compiled to WebAssembly and runs in wazero.
//
// An [Image] is an interpreter that has run a prelude: its memory is kept, and each [VM] starts as a copy of it, so that a
// new one costs a copy of a megabyte and not the parsing of its library. A VM has the functions that its maker gives it, and
// nothing else: no files, no clock of its own, no randomness of its own.
//
// # Threats
//
// Scripts are hostile, and an interpreter in C may have errors. It lives in linear memory that WebAssembly confines: a
// script that takes it over can call the functions given to the VM and nothing more. Those functions treat every argument
// as hostile. Memory is bounded by [Options.Grow], time by [Options.Step], which is asked every few thousand operations (in
// regular expressions too), and by the context, which ends the code wherever it is. Depth is bounded by the interpreter's
// stack, whose overflow is an error of the script.
//
// wazero reaches the operating system for executable memory and for nothing else: no directory, clock or stream of the
// host is given to it.
//
// # The binary
//
// It is a build product: QuickJS-ng with an interface for hosts, as npm's quickjs-wasi 3.6.2 (MIT) has it. shell/internal/qjswasm
// fetches it and checks [Sum]. A binary built without it works, but runs no JavaScript: starting a VM is [ErrMissing].
package quickjs
