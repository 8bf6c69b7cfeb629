//go:build !linux && !darwin

package run

import (
	"context"
	"errors"
	"syscall"

	"github.com/carrel-dev/carrel"
)

const system = "other"

// box returns an error for systems without walls. It says what to do.
func (j *Job) box(context.Context) (int, syscall.Signal, error) {
	return 0, 0, &carrel.Error{Op: "run", Kind: carrel.Unsupported, Err: errors.New("this system has no walls that Carrel knows"),
		Hint: "on Windows use WSL2, and run carrel inside it"}
}

func dieBy(sig syscall.Signal) int { return 128 + int(sig) }

// tiered runs the command in another tier.
func (j *Job) tiered(ctx context.Context) (int, syscall.Signal, error) { return j.Deps.Tier(ctx, j) }

func signalName(sig syscall.Signal) string { return sig.String() }
