package image

import (
	"context"
	"os"

	"github.com/carrel-dev/carrel"
)

// BuiltIn is a built-in template that a store makes at its first use, or ahead of it. A template of
// a project with the same name goes before it.
type BuiltIn struct {
	// Template is what is known before it is made: ID, name and source.
	Template carrel.Template
	// Print changes when the template should be made again: 20 hexadecimal digits.
	Print string
	// Make makes the image: a finished file in dir, not yet fsynced, and the template. The store
	// sets its time and size. Every other file in dir may be removed after Make.
	Make func(ctx context.Context, dir string, meter *Meter) (*os.File, carrel.Template, error)
}
