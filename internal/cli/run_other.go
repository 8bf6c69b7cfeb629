//go:build !linux

package cli

import (
	"context"
	"syscall"

	"github.com/carrel-dev/carrel/internal/run"
)

// runDeps returns the heavy parts of "carrel run". They exist on Linux only; here each returns an
// error that says so.
func runDeps() run.Deps {
	return run.Deps{
		Wire: func(run.WireOptions) (run.Wire, error) { return nil, localDaemons("carrel run --allow") },
		Tier: func(context.Context, *run.Job) (int, syscall.Signal, error) {
			return 0, 0, localDaemons("carrel run --tier")
		},
	}
}
