// Command carrel is the computer an AI agent runs on, in one binary: the daemon, its clients, and
// the walls. For the walls the binary executes itself again. On systems other than Linux it is only
// the clients, and "carrel run" if the system has walls for it.
package main

import (
	"os"

	"github.com/carrel-dev/carrel/internal/cli"
	"github.com/carrel-dev/carrel/internal/reexec"
)

func main() {
	// A process of a wall runs here instead of the command line, before other code has opened a
	// file or started a goroutine.
	if reexec.Run(parts()...) {
		return
	}
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
