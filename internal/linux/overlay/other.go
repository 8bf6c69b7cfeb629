//go:build !linux

package overlay

import (
	"context"
	"io"
	"os"

	"github.com/carrel-dev/carrel"
)

// errSystem is the error on systems without overlays.
var errSystem = &carrel.Error{Op: "overlay", Kind: carrel.Unsupported, Hint: "overlays are Linux's: use it there, or in a virtual machine with it"}

// Changes works only on Linux.
func Changes(context.Context, string, string, Options) ([]Change, error) { return nil, errSystem }

// Diff works only on Linux.
func Diff(context.Context, io.Writer, string, string, []Change) error { return errSystem }

// Apply works only on Linux.
func Apply(context.Context, string, string, []Change, Options) ([]Skipped, error) {
	return nil, errSystem
}

// Whiteout works only on Linux.
func Whiteout(string, string) error { return errSystem }

// Opaque works only on Linux.
func Opaque(string, string) error { return errSystem }

// Probe works only on Linux.
func Probe(string, string) error { return errSystem }

// Remove removes a directory.
func Remove(dir string) error { return os.RemoveAll(dir) }
