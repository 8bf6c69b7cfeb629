package shell

import "errors"

// ErrClosed is the error of a call to a closed machine, and of a script that Close ended.
var ErrClosed = errors.New("the machine is closed")

// Error is a call that failed.
type Error struct {
	Op    string // the call: "make a machine", "start a script", …
	Field string // the wrong field, such as Limits.Memory; "" when no field is wrong
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
