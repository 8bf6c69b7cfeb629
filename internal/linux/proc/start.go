//go:build linux

package proc

import (
	"slices"
	"sync"
)

// starting is held while a process starts in a user namespace.
var starting sync.Mutex

// Alone calls start, which starts a process in a user namespace of its own, while no other such call runs.
//
// The Go runtime opens the new process's uid_map and gid_map without close-on-exec (syscall.writeIDMappings) and lets
// several processes start at once, so that each could inherit the others' maps: at whatever number, and a sentry wants
// some numbers for itself.
func Alone(start func() error) error {
	starting.Lock()
	defer starting.Unlock()
	return start()
}

// AboveChild is a number above all descriptors that a child is given. Package syscall moves those about in the child, and takes the numbers
// behind the highest for that: a program that is to be executed by a descriptor must not lie there.
func AboveChild(given ...int) int {
	const moves = 16 // one for each, and its own pipe
	return max(3, slices.Max(given)) + moves
}
