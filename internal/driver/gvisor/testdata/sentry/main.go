// Command sentry is what sandboxes run in tests whose own binary can't be: one
// that is linked dynamically.
package main

import (
	"github.com/carrel-dev/carrel/internal/driver/gvisor"
	"github.com/carrel-dev/carrel/internal/reexec"
)

func main() { reexec.Run(gvisor.Parts()) }
