//go:build unix

package hostfs

import "syscall"

// noWait is for the opening of a file that was replaced by a pipe or a terminal. The opening then
// does not wait, and does not take over the terminal.
const noWait = syscall.O_NONBLOCK | syscall.O_NOCTTY
