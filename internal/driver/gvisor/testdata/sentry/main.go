// Command sentry is the program of the sandboxes in tests whose own binary can't be it because it
// is linked dynamically.
package main

import (
	"github.com/carrel-dev/carrel/internal/driver/gvisor"
	"github.com/carrel-dev/carrel/internal/reexec"
)

func main() { reexec.Run(gvisor.Parts()) }
