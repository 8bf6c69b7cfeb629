//go:build linux

// Command carrel-box is the small program inside the carrel binary. It is the stage: it builds a
// box from inside, and starts or becomes the command in it. It is also "carrel run" for simple
// cases: it starts in a fraction of the whole program's time, and hands everything else over to the
// whole program (package early).
package main

import (
	"fmt"
	"os"

	"github.com/carrel-dev/carrel/internal/box"
	"github.com/carrel-dev/carrel/internal/reexec"
	"github.com/carrel-dev/carrel/internal/run/early/handover"
)

func main() {
	if reexec.Run(box.Parts()) {
		return
	}
	if handover.Run() {
		return
	}
	fmt.Fprintln(os.Stderr, "carrel-box is a part of carrel, which starts it: see carrel run --help")
	os.Exit(2)
}
