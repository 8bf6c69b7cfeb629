package archive

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image/erofs"
)

const op = "import template"

// invalid is an error about the archive's own contents.
func invalid(format string, args ...any) error {
	return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "archive", Err: fmt.Errorf(format, args...)}
}

// exhausted is an error about one of Limits.
func exhausted(limit string, value int64, unit string) error {
	return &carrel.Error{Op: op, Kind: carrel.Exhausted, Field: limit,
		Err:  fmt.Errorf("the template has more than %d %s, the limit %s", value, unit, limit),
		Hint: "make the image smaller or raise " + limit + " of the template store"}
}

// Classify gives a Kind to an error that occurred while writing an image. An error that has one is
// returned as it is.
func Classify(op string, err error) error {
	var ce *carrel.Error
	switch {
	case err == nil || errors.As(err, &ce):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return &carrel.Error{Op: op, Kind: carrel.Exhausted, Field: "disk", Err: err, Hint: "free some disk space under the data directory"}
	case errors.Is(err, erofs.ErrTooLarge):
		return &carrel.Error{Op: op, Kind: carrel.Exhausted, Err: err}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &carrel.Error{Op: op, Kind: carrel.TimedOut, Err: err}
	}
	return &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
}

// sourceError is a failure of the archive's stream, in contrast to a fault in the archive.
type sourceError struct{ error }

func (e sourceError) Unwrap() error { return e.error }
