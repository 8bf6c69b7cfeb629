package guest

import (
	"io/fs"
	"net/http"
)

// UnstartedHeader goes with the error of a program that could not be started, where it is the program that is wrong: it is not
// there, or it can't be executed.
const UnstartedHeader = "Carrel-Unstarted"

// The values of UnstartedHeader.
const (
	ProgramMissing       = "missing"
	ProgramNotExecutable = "not-executable"
)

// unstarted is an error in the guest's words that is also fs.ErrNotExist or fs.ErrPermission.
type unstarted struct {
	text string
	kind error
}

// Error is what the guest says.
func (e *unstarted) Error() string { return e.text }

// Unwrap says what is wrong with the program.
func (e *unstarted) Unwrap() error { return e.kind }

// unstartedError is what a guest's error says of the program, nil if nothing.
func unstartedError(text string, h http.Header) error {
	switch h.Get(UnstartedHeader) {
	case ProgramMissing:
		return &unstarted{text, fs.ErrNotExist}
	case ProgramNotExecutable:
		return &unstarted{text, fs.ErrPermission}
	}
	return nil
}
