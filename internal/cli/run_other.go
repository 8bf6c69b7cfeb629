//go:build !linux

package cli

import "github.com/carrel-dev/carrel/internal/run"

// runDeps are the heavy parts of "carrel run": there are none here.
func runDeps() run.Deps { return run.Deps{} }
