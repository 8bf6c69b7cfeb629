//go:build unix

package settings

import (
	"os"
	"syscall"
)

// openNoWait opens a file for reading. It does not wait for the other end of a pipe.
func openNoWait(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}
