// Package reexec lets one binary play several parts. A process that a part of
// Carrel starts from its own binary (a sandbox's kernel, the keeper) is told by
// its argument vector which part it plays, and plays it before anything else runs.
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
// A driver that starts its own binary asks [Ready] first: in a program whose main
// never calls Run the child would run that program's main again, and so on for
// ever.
package reexec

import (
	"os"
	"sync/atomic"
)

// Parts maps a name to the function that plays that part. A name is either the
// whole of os.Args[0], or os.Args[0], a space and os.Args[1].
type Parts map[string]func()

// ready is process-wide because the question it answers is about the process:
// did its main look at the argument vector?
var ready atomic.Bool

// Run plays the part this process was started for and reports whether there was
// one. It must be the first thing main does.
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

// Ready reports whether Run was called in this process, so that starting the own
// binary is safe.
func Ready() bool { return ready.Load() }
