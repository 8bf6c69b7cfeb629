package cli

import (
	"github.com/carrel-dev/carrel/internal/box/stagebin"
	"github.com/carrel-dev/carrel/internal/run"
	"github.com/carrel-dev/carrel/internal/run/wired"
)

// runDeps are the heavy parts of "carrel run".
func runDeps() run.Deps {
	return run.Deps{Stage: stagebin.File, Wire: wired.Open}
}
