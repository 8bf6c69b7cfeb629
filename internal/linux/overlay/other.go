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

// Changes is Linux's alone.
func Changes(context.Context, string, string, Options) ([]Change, error) { return nil, errSystem }

// Diff is Linux's alone.
func Diff(context.Context, io.Writer, string, string, []Change) error { return errSystem }

// Apply is Linux's alone.
func Apply(context.Context, string, string, []Change, Options) ([]Skipped, error) {
	return nil, errSystem
}

// Whiteout is Linux's alone.
func Whiteout(string, string) error { return errSystem }

// Opaque is Linux's alone.
func Opaque(string, string) error { return errSystem }

// Probe is Linux's alone.
func Probe(string, string) error { return errSystem }

// Remove removes a directory.
func Remove(dir string) error { return os.RemoveAll(dir) }
