// Package script has JavaScript and Python. Both interpreters are WebAssembly in wazero and have no
// operating system. They have only the files, clocks, sockets and streams that the simulated
// machine's process gives them. wazero itself imports os. This package uses it so that it calls the
// host only for executable memory (see package quickjs).
//
// JavaScript (node, nodejs, js, js-exec, qjs) is QuickJS with a part of node's library. The library
// is written in JavaScript (directory js), over a few dozen functions in Go. These parts are
// missing on purpose: sockets and servers (fetch and http's client exist), workers, native addons,
// ciphers and keys, and Intl for locales other than en-US. Each throws an error that says so.
//
// Python (python3, python) is CPython 3.12 for WASI, if the build has it (package pywasm), on the
// machine's files. Its subprocess and urllib.request use the machine. It has no threads and no
// sockets.
package script

import "github.com/carrel-dev/carrel/shell/tool"

// Commands returns the programs of this package by name.
func Commands() map[string]tool.Command {
	return map[string]tool.Command{
		"node": runNode, "nodejs": runNode, "js": runNode, "js-exec": runNode, "qjs": runNode,
		"python3": runPython, "python": runPython,
	}
}
