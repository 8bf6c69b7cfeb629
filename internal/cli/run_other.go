//go:build !linux

package cli

import (
	"context"
	"errors"
	"runtime"
	"syscall"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/run"
)

// walls says why this system has none for "carrel run": macOS has Seatbelt.
func walls() error {
	if runtime.GOOS == "darwin" {
		return nil
	}
	return &carrel.Error{Op: "run", Kind: carrel.Unsupported, Err: errors.New(runtime.GOOS + " has no walls that Carrel knows"),
		Hint: "on Windows use WSL2: wsl --install, then carrel run inside it"}
}

// runDeps are the heavy parts of "carrel run". They are Linux's; each says so when it is asked for.
func runDeps() run.Deps {
	return run.Deps{
		Wire: func(run.WireOptions) (run.Wire, error) { return nil, localDaemons("carrel run --allow") },
		Tier: func(context.Context, *run.Job) (int, syscall.Signal, error) {
			return 0, 0, localDaemons("carrel run --tier")
		},
	}
}
