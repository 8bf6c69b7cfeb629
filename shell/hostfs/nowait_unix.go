//go:build unix

package hostfs

import "syscall"

// noWait keeps the opening of what was swapped for a pipe or a terminal from waiting or
// from taking it over.
const noWait = syscall.O_NONBLOCK | syscall.O_NOCTTY
