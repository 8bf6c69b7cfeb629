//go:build !linux

package simshell

import (
	"errors"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/shell/outside"
)

// way is the machine's network. It exists only on Linux.
type way struct{ *outside.HTTP }

// Close ends it.
func (way) Close() {}

func wayOut(Options) (*way, []string, error) {
	return nil, nil, &carrel.Error{Op: "make the way out", Kind: carrel.Unsupported, Field: "allow",
		Err: errors.New("simulated machines reach the network on Linux only"), Hint: "leave --allow out, or use a daemon on Linux"}
}
