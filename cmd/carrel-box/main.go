//go:build linux

// Command carrel-box is the small program that the carrel binary carries. It is the stage: it builds a box
// from inside and starts, or becomes, the command in it. And it is "carrel run" where nothing more is needed: it starts
// in a fraction of the time that the whole program takes, and hands back to it what it can't do (package early).
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
