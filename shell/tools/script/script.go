// Package script has JavaScript and Python, as interpreters without a system below: both are WebAssembly in wazero, which has
// no files, clocks, sockets or streams but those that the process of the simulated machine gives it. wazero itself imports
// os; it is used in ways that reach the host for executable memory alone (see package quickjs).
//
// JavaScript (node, nodejs, js, js-exec, qjs) is QuickJS with a part of node's library written in JavaScript (directory js)
// over a few dozen functions in Go. What is missing on purpose: sockets and servers (fetch and http's client are there),
// workers, native addons, ciphers and keys, and Intl for other places than en-US; each says so when it is called.
//
// Python (python3, python) is CPython 3.12 for WASI, if the build has it (package pywasm), on the machine's files. Its
// subprocess and urllib.request go through the machine; threads and sockets are not there.
package script

import "github.com/carrel-dev/carrel/shell/tool"

// Commands returns the programs of this package by name.
func Commands() map[string]tool.Command {
	return map[string]tool.Command{
		"node": runNode, "nodejs": runNode, "js": runNode, "js-exec": runNode, "qjs": runNode,
		"python3": runPython, "python": runPython,
	}
}
