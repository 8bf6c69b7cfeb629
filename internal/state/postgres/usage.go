package postgres

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"github.com/carrel-dev/carrel/internal/state"
)

// EachUsage implements state.Store.
func (s *Store) EachUsage(ctx context.Context, from, to time.Time, fn func(state.Usage) error) error {
	first, last := int64(math.MinInt64), int64(math.MaxInt64)
	if !from.IsZero() {
		first = from.UnixNano()
	}
	if !to.IsZero() {
		last = to.UnixNano()
	}
	return s.walk(ctx, fn, "SELECT body FROM usage WHERE until >= $1 AND start <= $2", first, last)
}

// OpenUsage implements state.Store.
func (s *Store) OpenUsage(ctx context.Context, fn func(state.Usage) error) error {
	return s.walk(ctx, fn, "SELECT body FROM usage WHERE until = $1", int64(math.MaxInt64))
}

// walk calls fn for the pieces of usage that a query finds, all of one moment. It has a connection
// of its own until fn has seen them all. Half of the connections are never used for walks, so that fn
// can read from the store. A piece that is unreadable must not hide the others.
func (s *Store) walk(ctx context.Context, fn func(state.Usage) error, q string, args ...any) error {
	const op = "read usage"
	late := time.NewTimer(s.timeout)
	defer late.Stop()
	select {
	case s.walks <- struct{}{}:
		defer func() { <-s.walks }()
	case <-ctx.Done():
		return internal(op, "", ctx.Err())
	case <-late.C:
		return mapError(op, "", errAway)
	}
	return s.pages(ctx, op, q, args, func(body string) error {
		var u state.Usage
		if json.Unmarshal([]byte(body), &u) != nil {
			return nil
		}
		return fn(u)
	})
}
