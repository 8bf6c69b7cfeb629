//go:build unix

package cli

import (
	"os"
	"syscall"
)

// resized are the signals for a terminal's new size.
var resized = []os.Signal{syscall.SIGWINCH}
