package bench

import (
	"context"
	"fmt"
	"time"
)

// runner is one side of a comparison.
type runner struct {
	name string
	// once does the work and returns the part of its time that counts.
	once func(context.Context) (time.Duration, error)
	// every makes it take part only in one round of every; 0 is all.
	every int
	// gap is a pause before each round.
	gap   time.Duration
	times []float64 // milliseconds
}

// race runs the same job in each way, many times, one way after another. Each round begins with
// another way, so that a busy minute of the machine affects all of them. The first warm rounds do
// not count.
func race(ctx context.Context, warm, rounds int, list ...*runner) error {
	for i := range warm + rounds {
		for k := range list {
			r := list[(i+k)%len(list)]
			if i >= warm && r.every > 1 && i%r.every != 0 {
				continue
			}
			if err := sleep(ctx, r.gap); err != nil {
				return err
			}
			took, err := r.once(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			if i >= warm {
				r.times = append(r.times, ms(took))
			}
		}
	}
	return nil
}
