//go:build !unix

package cli

import "os"

// resized is empty: this system has no signal for it, and a terminal keeps its first size.
var resized []os.Signal
