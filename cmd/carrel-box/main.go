//go:build linux

// Command carrel-box is the stage: it builds a box from inside and becomes, or starts,
// the command in it. The carrel binary carries it and starts it; it is of no use by itself.
package main

import (
	"fmt"
	"os"

	"github.com/carrel-dev/carrel/internal/box"
	"github.com/carrel-dev/carrel/internal/reexec"
)

func main() {
	if reexec.Run(box.Parts()) {
		return
	}
	fmt.Fprintln(os.Stderr, "carrel-box is a part of carrel, which starts it: see carrel run --help")
	os.Exit(2)
}
