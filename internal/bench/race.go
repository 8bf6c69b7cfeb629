package bench

import (
	"context"
	"fmt"
	"time"
)

// runner is one side of a comparison.
type runner struct {
	name string
	// once does the work and returns what counts of its time.
	once func(context.Context) (time.Duration, error)
	// every makes it take part in one of so many rounds; 0 is all.
	every int
	// gap is how long nothing is asked of the machine before each round.
	gap   time.Duration
	times []float64 // milliseconds
}

// race runs the same job in each way, again and again, one way after the other and
// each round beginning with another, so that a busy minute of the machine meets all of them.
// warm rounds in front are not counted.
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
