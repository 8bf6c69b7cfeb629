package cli

import (
	"context"
	"errors"
	"io/fs"

	"github.com/carrel-dev/carrel"
)

// exitCodes is the only table from error kinds to exit statuses. A status never gets another
// meaning. exec and shell exit with the command's own status. If there is no such command, or it
// can't be executed, they exit with a shell's status for that. If Carrel itself fails, they exit
// with 125.
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
	exitOwnFailure  = 125 // exec and shell: Carrel failed, not the command
	exitCantExecute = 126 // exec, shell and run: the command can't be executed
	exitNoCommand   = 127 // exec, shell and run: there is no such command
)

// ownFailure marks an error of exec and shell as Carrel's, not the command's.
type ownFailure struct{ error }

// Unwrap returns the marked error.
func (e ownFailure) Unwrap() error { return e.error }

// unstartedCommand is the error for a command that is missing or can't be executed.
type unstartedCommand struct {
	error
	status int
}

// Unwrap returns the marked error.
func (e unstartedCommand) Unwrap() error { return e.error }

// startFailure marks the error of a failed start as Carrel's or as the command's.
func startFailure(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return unstartedCommand{err, exitNoCommand}
	case errors.Is(err, fs.ErrPermission):
		return unstartedCommand{err, exitCantExecute}
	}
	return ownFailure{err}
}

// exitCode returns the exit status for an error.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	if unstarted, ok := errors.AsType[unstartedCommand](err); ok {
		return unstarted.status
	}
	if _, own := errors.AsType[ownFailure](err); own {
		return exitOwnFailure
	}
	if code, ok := exitCodes[carrel.KindOf(err)]; ok {
		return code
	}
	return 1
}
