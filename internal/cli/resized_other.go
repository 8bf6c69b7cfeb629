//go:build !unix

package cli

import "os"

// resized is empty: this system has no signal for it, and a terminal keeps the size that it began with.
var resized []os.Signal
