package guest

import (
	"io/fs"
	"net/http"
)

// UnstartedHeader goes with the error for a program that could not be started because of the
// program itself: it is missing, or it can't be executed.
const UnstartedHeader = "Carrel-Unstarted"

// The values of UnstartedHeader.
const (
	ProgramMissing       = "missing"
	ProgramNotExecutable = "not-executable"
)

// unstarted is an error with the guest's text that is also fs.ErrNotExist or fs.ErrPermission.
type unstarted struct {
	text string
	kind error
}

// Error is what the guest says.
func (e *unstarted) Error() string { return e.text }

// Unwrap returns the reason: fs.ErrNotExist or fs.ErrPermission.
func (e *unstarted) Unwrap() error { return e.kind }

// unstartedError returns the error that a guest's answer reports about the program, or nil if it
// reports none.
func unstartedError(text string, h http.Header) error {
	switch h.Get(UnstartedHeader) {
	case ProgramMissing:
		return &unstarted{text, fs.ErrNotExist}
	case ProgramNotExecutable:
		return &unstarted{text, fs.ErrPermission}
	}
	return nil
}
