package shell

import "errors"

// ErrClosed is the error of using a machine that was closed, and of a script that Close ended.
var ErrClosed = errors.New("the machine is closed")

// Error is a call that could not be done.
type Error struct {
	Op    string // what was asked for: "make a machine", "start a script", …
	Field string // the field that is wrong, as Limits.Memory; "" when none is
	Err   error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Field != "" {
		return e.Op + ": " + e.Field + ": " + e.Err.Error()
	}
	return e.Op + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
