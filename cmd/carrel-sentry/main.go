//go:build linux

// Command carrel-sentry is the part of carrel that runs as a sandbox's kernel, together with other
// parts that are equally confined. The whole program can do their work too, and does so if it was
// built without this one. But this one is a third of its size, and a process that starts for each
// sandbox should not initialise a daemon.
package main

import (
	"os"

	"github.com/carrel-dev/carrel/internal/driver/gvisor"
	_ "github.com/carrel-dev/carrel/internal/driver/gvisor/umounter" // plays its part before main
	"github.com/carrel-dev/carrel/internal/reexec"
)

func main() {
	if reexec.Run(gvisor.Parts()) {
		return
	}
	os.Stderr.WriteString("carrel-sentry: carrel starts this program; it does nothing by itself\n")
	os.Exit(2)
}
