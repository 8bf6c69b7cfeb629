// Command carrel is the computer an AI agent runs on, in one binary: the daemon,
// its clients, and the walls themselves, for which it re-executes itself. On
// systems other than Linux it is the clients, and "carrel run" where that has walls.
package main

import (
	"os"

	"github.com/carrel-dev/carrel/internal/cli"
	"github.com/carrel-dev/carrel/internal/reexec"
)

func main() {
	// A wall's own process runs instead of the command line, before anything
	// else has opened a file or started a goroutine.
	if reexec.Run(parts()...) {
		return
	}
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
