package store

import (
	"context"

	"github.com/carrel-dev/carrel"
)

// Push sends a template to a registry.
func (s *Store) Push(ctx context.Context, id string, opts carrel.PushOptions, progress func(carrel.Progress)) (carrel.Pushed, error) {
	return carrel.Pushed{}, &carrel.Error{Op: "push template", Kind: carrel.Unsupported}
}
