package carrel

import "context"

// Pools reports on sandboxes that are kept ready: they are made ahead, and the next creation of
// their kind adopts one. Until then they belong to nobody, and no other part of this package shows
// them. Only administrators may look; other callers get Forbidden.
type Pools interface {
	Pool(ctx context.Context) (PoolStatus, error)
}

// PoolStatus is the state of the pool.
type PoolStatus struct {
	Cap    int `json:"cap"`    // most that may be ready at once; 0: the pool is off
	Ready  int `json:"ready"`  // are
	Making int `json:"making"` // are being made
	// Memory says what the host's memory lets the pool do: "grow", "hold" or "shrink".
	Memory string `json:"memory"`
	// Hits counts creations that found a ready sandbox. Misses counts those that could have used
	// one but found none. Lost counts ready sandboxes that were given up: no longer wanted, or
	// broken.
	Hits   int64      `json:"hits"`
	Misses int64      `json:"misses"`
	Lost   int64      `json:"lost"`
	Kinds  []PoolKind `json:"kinds"` // by template, then by size
	// Problem says why the last attempt to make a ready sandbox failed.
	Problem string `json:"problem,omitempty"`
	Gate    Gate   `json:"gate"`
	// Blanks is about the blank sentries of the tier gvisor; nil where none are kept.
	Blanks *BlankSentries `json:"blankSentries,omitempty"`
}

// BlankSentries are counts of gVisor kernels that were started before there is a sandbox for them.
// A sandbox with no ready sandbox to adopt starts with one of them.
type BlankSentries struct {
	Keep   int    `json:"keep"`   // wanted number of waiting ones
	Ready  int    `json:"ready"`  // do
	Taken  uint64 `json:"taken"`  // were given to one
	Missed uint64 `json:"missed"` // creations that found none
	Failed uint64 `json:"failed"` // ended before they had a sandbox
}

// Gate is the state of the queue where sandboxes that are not adopted wait for their turn to start.
type Gate struct {
	Limit    int    `json:"limit"`    // how many the machine sustains at once, if known
	Starting int    `json:"starting"` // are under way
	Waiting  int    `json:"waiting"`  // for their turn
	Refused  uint64 `json:"refused"`  // since the service began
}

// PoolKind is one kind of sandbox in the pool.
type PoolKind struct {
	Template string `json:"template"` // the template's name, or its ID if it has no name
	Tier     Tier   `json:"tier"`
	Limits   Limits `json:"limits"`
	Golden   bool   `json:"golden,omitempty"` // restored from the template's snapshot, server running
	Ready    int    `json:"ready"`
	Making   int    `json:"making"`
	Target   int    `json:"target"`          // how many should be ready
	Floor    int    `json:"floor,omitempty"` // the least number, by configuration
	Hits     int64  `json:"hits"`
	Misses   int64  `json:"misses"`
}
