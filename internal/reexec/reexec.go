// Package reexec lets one binary play several parts. Carrel starts some processes from its own
// binary (a sandbox's kernel, the keeper). The argument vector tells such a process which part it
// plays, and it plays that part before anything else runs.
//
// # Use
//
// The program's main calls [Run] first, with the table of all parts:
//
//	func main() {
//		if reexec.Run(gvisor.Parts(), keeper.Parts()) {
//			return
//		}
//		…
//	}
//
// A driver that starts its own binary asks [Ready] first. If the program's main never calls Run,
// the child would run that main again, and so on for ever.
package reexec

import (
	"os"
	"sync/atomic"
)

// Parts maps a name to the function that plays that part. A name is either the
// whole of os.Args[0], or os.Args[0], a space and os.Args[1].
type Parts map[string]func()

// ready is global because it describes the process: did its main look at the argument vector?
var ready atomic.Bool

// Run plays the part this process was started for and reports whether there was one. main must call
// it first.
func Run(tables ...Parts) bool {
	ready.Store(true)
	name, two := os.Args[0], ""
	if len(os.Args) > 1 {
		two = name + " " + os.Args[1]
	}
	for _, t := range tables {
		for _, key := range []string{name, two} {
			if play, ok := t[key]; ok && key != "" {
				play()
				return true
			}
		}
	}
	return false
}

// Ready reports whether Run was called in this process. Only then is it safe to start our own
// binary.
func Ready() bool { return ready.Load() }
