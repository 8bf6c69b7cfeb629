package fleet

import (
	"context"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/quota"
)

// The quotas of a project hold for all nodes together. What counts is in the [Registry]: each home
// whose sandbox runs, and each share of a creation that is under way. A front takes a share before it
// asks a node for a sandbox. The claim of the sandbox's home takes the share's place, in one step. So
// the sum is never too low, whoever dies in between. A share that nobody prolongs is no share any
// more after [ShareLife].

const (
	// ShareLife is how long a share counts without a word from its front.
	ShareLife = 15 * time.Second
	// ProlongEvery is how often a front prolongs the shares of its creations.
	ProlongEvery = 4 * time.Second
	// BornWithin is how long a new home does not count that its node claimed. The front that made the
	// sandbox has a share for it, and says so in its own claim a moment later.
	BornWithin = 3 * time.Second
)

// Asked is what a front wants shares for: Count sandboxes of one size.
type Asked struct {
	Project string
	Key     string // the ID of the API key; "" for none
	Load    quota.Load
	Count   int
	// Creates is how many creations each of them is: 1, or 0 for what is none.
	Creates int
	// Repeat is the idempotency key of the creation, if it has one.
	Repeat string
}

// Taken is the answer to [Shares.Take].
type Taken struct {
	// Shares are the numbers of the shares, one for each sandbox.
	Shares []int64
	// Soft are the soft limits that these are the first to pass.
	Soft []carrel.LimitHit
	// Again says that a quota refuses it, but that it may be the repetition of a creation: Twin is the
	// sandbox of that one, or "" while that one is under way.
	Again bool
	Twin  carrel.ID
	// Refused is why it is no new creation, if Again is set.
	Refused error
}

// Shares count what projects and their keys hold in the whole fleet. A [Registry] has them.
type Shares interface {
	// Take takes shares unless a hard limit refuses them. Check and charge are one step for all fronts.
	// Error: Exhausted, with the limit.
	Take(ctx context.Context, a Asked, bounds []quota.Bound) (Taken, error)
	// Prolong keeps shares for another [ShareLife].
	Prolong(ctx context.Context, shares ...int64) error
	// Drop gives shares back whose creation failed.
	Drop(ctx context.Context, shares ...int64) error
	// Used returns what a holder uses.
	Used(ctx context.Context, h carrel.Holder) (map[carrel.LimitName]carrel.Milli, error)
	// Keep has a sandbox count for a time, also while it is paused: it moves to another node. It runs
	// again without a new look at the quotas.
	Keep(ctx context.Context, id carrel.ID, life time.Duration) error
}

// Born is what a front says of a sandbox that it made, when it claims a home for it.
type Born struct {
	Key    string // the ID of the API key that made it; "" for none
	Repeat string // its idempotency key
	Shares []int64
}
