package build

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
)

// tiersKnown is how long the engine believes that a tier works.
const tiersKnown = 10 * time.Minute

// tiers remembers which tiers work. To find out takes a process in namespaces of its own for each,
// longer than a build that finds everything in the cache.
type tiers struct {
	mu   sync.Mutex
	all  []carrel.Tier
	till time.Time
}

// get returns the tiers that work, the best first. If the tier that is asked for ("" is any) is not
// among those that are known, find looks again. A tier that works no more is found by the creation
// of a sandbox, which says why.
func (t *tiers) get(ctx context.Context, asked carrel.Tier,
	find func(context.Context) []carrel.Tier) []carrel.Tier {
	t.mu.Lock()
	defer t.mu.Unlock()
	has := asked == "" && len(t.all) > 0 || slices.Contains(t.all, asked)
	if asked == carrel.Sim || has && time.Now().Before(t.till) {
		return t.all
	}
	all := find(ctx)
	if ctx.Err() == nil { // else they may have failed for that
		t.all, t.till = all, time.Now().Add(tiersKnown)
	}
	return all
}
