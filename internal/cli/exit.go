package cli

import (
	"context"
	"errors"

	"github.com/carrel-dev/carrel"
)

// exitCodes is the one table from error kinds to exit statuses. Statuses are
// never reused for another meaning. exec and shell exit with the command's own
// status; when Carrel itself fails there, the status is 125.
var exitCodes = map[carrel.Kind]int{
	carrel.Internal:        1,
	carrel.Invalid:         2,
	carrel.NotFound:        3,
	carrel.Unauthenticated: 4,
	carrel.Forbidden:       4,
	carrel.Denied:          4,
	carrel.AlreadyExists:   5,
	carrel.Conflict:        5,
	carrel.Exhausted:       6,
	carrel.Unavailable:     7,
	carrel.TimedOut:        7,
	carrel.Unsupported:     8,
}

const (
	exitInterrupted = 130 // as a shell reports SIGINT
	exitOwnFailure  = 125 // exec and shell: not the command's status but ours
)

// ownFailure marks an error of exec and shell as Carrel's, not the command's.
type ownFailure struct{ error }

// Unwrap returns the error itself.
func (e ownFailure) Unwrap() error { return e.error }

// exitCode returns the exit status for an error.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	if _, own := errors.AsType[ownFailure](err); own {
		return exitOwnFailure
	}
	if code, ok := exitCodes[carrel.KindOf(err)]; ok {
		return code
	}
	return 1
}
