//go:build linux

package proc

import (
	"slices"
	"sync"
)

// starting is held while a process starts in a user namespace.
var starting sync.Mutex

// Alone calls start while no other call of Alone runs. start starts a process in a user namespace
// of its own.
//
// The Go runtime opens the new process's uid_map and gid_map without close-on-exec
// (syscall.writeIDMappings). Without Alone several processes could start at once, and each could
// inherit the others' maps at any number. A sentry needs certain numbers for itself.
func Alone(start func() error) error {
	starting.Lock()
	defer starting.Unlock()
	return start()
}

// AboveChild is a number above all descriptors that a child is given. Package syscall moves those
// about in the child, and takes the numbers behind the highest for that: a program that is to be
// executed by a descriptor must not lie there.
func AboveChild(given ...int) int {
	const moves = 16 // one for each, and its own pipe
	return max(3, slices.Max(given)) + moves
}
