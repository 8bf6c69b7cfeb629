package ceiling

import "context"

type boundsKey struct{}

// With returns a context for work that more ceilings bind than those that are known here: the ones of
// the front that asks.
func With(ctx context.Context, bounds []Bound) context.Context {
	return context.WithValue(ctx, boundsKey{}, bounds)
}

// In returns the ceilings that With set.
func In(ctx context.Context) []Bound {
	bounds, _ := ctx.Value(boundsKey{}).([]Bound)
	return bounds
}
