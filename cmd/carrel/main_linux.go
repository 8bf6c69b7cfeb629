package main

import (
	"github.com/carrel-dev/carrel/internal/bench"
	"github.com/carrel-dev/carrel/internal/daemon"
	"github.com/carrel-dev/carrel/internal/reexec"
	_ "github.com/carrel-dev/carrel/internal/run/early" // hands "carrel run" over at once
	"github.com/carrel-dev/carrel/internal/run/tier"
	"github.com/carrel-dev/carrel/internal/run/wired"
)

// parts returns the other processes that this binary can be, besides the command line.
func parts() []reexec.Parts {
	return []reexec.Parts{daemon.Reexec(), tier.Parts(), bench.Parts(), wired.Parts()}
}
