package main

import (
	"github.com/carrel-dev/carrel/internal/daemon"
	"github.com/carrel-dev/carrel/internal/reexec"
)

// parts are the processes that this binary is besides the command line.
func parts() []reexec.Parts { return []reexec.Parts{daemon.Reexec()} }
