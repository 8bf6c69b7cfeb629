package front

import (
	"context"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/access"
	"github.com/carrel-dev/carrel/internal/ceiling"
	"github.com/carrel-dev/carrel/internal/engine"
)

// behalf returns a function for what nodes are told of the caller: whose usage it is, and which ceilings
// hold. They are those of the caller's key, and those of the key that made the sandbox.
func behalf(ceilings func(project, key string) []ceiling.Bound, h *homes) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		c, ok := carrel.CallerIn(ctx)
		if !ok { // the fleet's own work
			return "", nil
		}
		project, madeBy := c.Project, c.KeyID
		if id := engine.SandboxIn(ctx); id != "" {
			home, found, err := h.maker(ctx, id)
			if err != nil {
				return "", err
			}
			if found {
				project, madeBy = home.Project, home.Key
			}
		}
		bounds := ceilings(project, madeBy)
		if c.Project == project && c.KeyID != "" && c.KeyID != madeBy {
			bounds = append(bounds[:len(bounds):len(bounds)], ceilings(project, c.KeyID)...)
		}
		return access.Behalf{Key: c.Key, KeyID: c.KeyID, Bounds: bounds}.Text()
	}
}
