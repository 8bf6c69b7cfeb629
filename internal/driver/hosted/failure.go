package hosted

import (
	"context"
	"errors"
	"os"
	"syscall"

	"github.com/carrel-dev/carrel"
)

// Remedies are a driver's own hints for errors of Create.
type Remedies struct {
	NoSpace   string // the host has no room: on its disk, or elsewhere
	Forbidden string // the host refuses one of the driver's actions
}

// Explain adds an Op, a Kind and a hint to an error of a creation, a restore or the like. If err
// wraps a [*carrel.Error], it keeps that one's. A nil err stays nil.
func (r Remedies) Explain(op string, id carrel.ID, err error) error {
	if err == nil {
		return nil
	}
	out := &carrel.Error{Op: op, Kind: carrel.Internal, ID: id, Err: err}
	var inner *carrel.Error
	switch {
	case errors.As(err, &inner):
		out.Kind, out.Field, out.Hint = inner.Kind, inner.Field, inner.Hint
		if err == error(inner) && inner.Op == "" && inner.Err != nil {
			out.Err = inner.Err // its field is said once
		}
	case errors.Is(err, context.DeadlineExceeded):
		out.Kind = carrel.TimedOut
	case errors.Is(err, context.Canceled):
		out.Kind = carrel.Unavailable
	case errors.Is(err, os.ErrNotExist):
		out.Kind = carrel.NotFound
	case errors.Is(err, os.ErrExist):
		out.Kind = carrel.AlreadyExists
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		out.Kind, out.Hint = carrel.Exhausted, r.NoSpace
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		out.Kind, out.Hint = carrel.Exhausted, "raise the limit of open files (ulimit -n)"
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM):
		out.Kind, out.Hint = carrel.Exhausted, "the host is out of processes or memory"
	case errors.Is(err, os.ErrPermission):
		out.Kind, out.Hint = carrel.Unsupported, r.Forbidden
	}
	return out
}
