package image

import (
	"context"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// Parallel calls fn for each item, several at once, until a call fails or ctx ends. It returns when
// every call has returned.
func Parallel[T any](ctx context.Context, items []T, fn func(T) error) error {
	g, ctx := errgroup.WithContext(ctx)
	todo := make(chan T)
	for range max(4, runtime.GOMAXPROCS(0)) {
		g.Go(func() error {
			for item := range todo {
				if err := fn(item); err != nil {
					return err
				}
			}
			return nil
		})
	}
	g.Go(func() error {
		defer close(todo)
		for _, item := range items {
			select {
			case todo <- item:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	return g.Wait()
}
