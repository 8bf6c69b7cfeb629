//go:build linux

package box

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/carrel-dev/carrel"
)

// fault turns an error of the stage into a form for the socket.
func fault(op string, err error) *failure {
	f := &failure{Op: op, Text: err.Error()}
	var known *carrel.Error
	if errors.As(err, &known) {
		f.Kind, f.Hint = string(known.Kind), known.Hint
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		f.Errno = int(errno)
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		f.Path = path.Path
	}
	return f
}

// err returns the error for the caller of Start.
func (f *failure) err() error {
	if f.Exec {
		return &os.PathError{Op: "exec", Path: f.Path, Err: syscall.Errno(f.Errno)}
	}
	kind := carrel.Kind(f.Kind)
	if kind == "" {
		kind = carrel.Internal
	}
	op := "build box"
	if f.Op != "" {
		op += ": " + f.Op
	}
	return &carrel.Error{Op: op, Kind: kind, Err: &cause{f.Text, syscall.Errno(f.Errno)}, Hint: f.Hint}
}

// cause holds the text and the number of an error from the stage.
type cause struct {
	text  string
	errno syscall.Errno
}

func (c *cause) Error() string { return c.text }

// Unwrap returns the system's error, for errors.Is.
func (c *cause) Unwrap() error {
	if c.errno == 0 {
		return nil
	}
	return c.errno
}

// invalid is an error about the Spec.
func invalid(field string, err error) error {
	return &carrel.Error{Op: "build box", Kind: carrel.Invalid, Field: field, Err: err}
}
