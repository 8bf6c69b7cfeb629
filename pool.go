package carrel

import "context"

// Pools is what can be asked about sandboxes that are kept ready: made ahead, adopted
// by the creation that next wants one of their kind. They are nobody's until then, and
// no other part of this package shows them. They are for administrators: others are
// Forbidden to look.
type Pools interface {
	Pool(ctx context.Context) (PoolStatus, error)
}

// PoolStatus is how the pool is doing.
type PoolStatus struct {
	Cap    int `json:"cap"`    // how many may be ready at once; 0: the pool is off
	Ready  int `json:"ready"`  // are
	Making int `json:"making"` // are being made
	// Memory is what the host's memory allows: "grow", "hold" or "shrink".
	Memory string `json:"memory"`
	// Hits are the creations that found one ready, Misses those that could have and did
	// not, Lost the ones that were given up: unwanted any more, or broken.
	Hits   int64      `json:"hits"`
	Misses int64      `json:"misses"`
	Lost   int64      `json:"lost"`
	Kinds  []PoolKind `json:"kinds"` // by template, then by size
	// Problem is why the last one that was to be made could not be.
	Problem string `json:"problem,omitempty"`
	Gate    Gate   `json:"gate"`
	// Blanks are those of the tier gvisor; nil where none are kept.
	Blanks *BlankSentries `json:"blankSentries,omitempty"`
}

// BlankSentries are counts of gVisor kernels that are started before there is a sandbox for them, and that a sandbox which nothing is ready for
// starts with.
type BlankSentries struct {
	Keep   int    `json:"keep"`   // how many are to wait for a sandbox
	Ready  int    `json:"ready"`  // do
	Taken  uint64 `json:"taken"`  // were given to one
	Missed uint64 `json:"missed"` // creations that found none
	Failed uint64 `json:"failed"` // ended before they had a sandbox
}

// Gate is what goes on where sandboxes that are not adopted wait for their turn to start.
type Gate struct {
	Limit    int    `json:"limit"`    // how many the machine sustains at once, as far as is known
	Starting int    `json:"starting"` // are under way
	Waiting  int    `json:"waiting"`  // for their turn
	Refused  uint64 `json:"refused"`  // since the service began
}

// PoolKind is one kind of sandbox that is kept ready.
type PoolKind struct {
	Template string `json:"template"` // its name, or its ID where it has none
	Tier     Tier   `json:"tier"`
	Limits   Limits `json:"limits"`
	Golden   bool   `json:"golden,omitempty"` // restored from the template's own start, whose server is up
	Ready    int    `json:"ready"`
	Making   int    `json:"making"`
	Target   int    `json:"target"`          // how many should be ready
	Floor    int    `json:"floor,omitempty"` // how many are at least, by configuration
	Hits     int64  `json:"hits"`
	Misses   int64  `json:"misses"`
}
