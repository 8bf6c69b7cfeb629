package state

import (
	"context"
	"math"
	"time"

	"github.com/carrel-dev/carrel"
)

// Usage is one piece of metered use: an unbroken time in which one subject had one size. It is open
// until it has an end. Package ledger writes pieces, in the same [Change] as the record that says
// why one begins or ends.
type Usage struct {
	ID      string           `json:"id"`      // unique
	Subject string           `json:"subject"` // the ID of a sandbox or a snapshot; "" for many together
	Kind    carrel.UsageKind `json:"kind"`

	// Whose it is. These and the sizes are fixed for life.
	Project  string            `json:"project,omitempty"`
	Key      string            `json:"key,omitempty"` // the name of the API key that made the subject
	Template string            `json:"template,omitempty"`
	Tier     carrel.Tier       `json:"tier,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`

	MilliCPUs int64 `json:"mcpu,omitempty"`
	MemoryMiB int64 `json:"memory,omitempty"`
	Bytes     int64 `json:"bytes,omitempty"` // of a snapshot

	Start time.Time `json:"start"`
	// End is Start plus the length; zero while the piece is open.
	End time.Time `json:"end,omitzero"`
	// Boot and Mono are the machine's boot and its monotonic clock at Start.
	Boot string        `json:"boot,omitempty"`
	Mono time.Duration `json:"mono,omitempty"`

	// The length, also multiplied by the sizes. In an open piece this is what was known when it was
	// last written.
	AliveMS    int64 `json:"alive,omitempty"`
	CPUAlive   int64 `json:"cpuAlive,omitempty"`   // milli-CPUs × ms
	MemAlive   int64 `json:"memAlive,omitempty"`   // MiB × ms
	BytesAlive int64 `json:"bytesAlive,omitempty"` // MiB × ms, of a snapshot

	// What its programs used.
	CPUMicros int64 `json:"cpu,omitempty"`
	MemUsed   int64 `json:"memUsed,omitempty"`  // MiB × ms
	DiskUsed  int64 `json:"diskUsed,omitempty"` // MiB × ms
	BytesOut  int64 `json:"out,omitempty"`
	BytesIn   int64 `json:"in,omitempty"`

	// Counted is the last reading of the instance's own counters. Only an open piece has it.
	Counted *Reading `json:"counted,omitempty"`
	// Pieces is how many pieces were folded into this one; 0 for one as it was measured.
	Pieces int `json:"pieces,omitempty"`
}

// UsageSeen is the kind of the one row that says when the writer of usage last knew that all open
// pieces went on.
const UsageSeen carrel.UsageKind = "seen"

// Reading is one measurement of a running instance.
type Reading struct {
	Mono     time.Duration `json:"mono"` // when
	CPU      time.Duration `json:"cpu"`  // since the instance's start
	Memory   int64         `json:"memory"`
	Disk     int64         `json:"disk"`
	Sent     int64         `json:"sent"` // since the daemon's start
	Received int64         `json:"received"`
}

// Open reports whether a piece has no end yet.
func (u Usage) Open() bool { return u.End.IsZero() }

// Until is the last column of a piece's row: its end, or the end of all time.
func (u Usage) Until() int64 {
	if u.Open() {
		return math.MaxInt64
	}
	return u.End.UnixNano()
}

// UsageStore is the part of a [Store] for usage.
type UsageStore interface {
	// EachUsage calls fn for every piece that touches the time from from to to, in no order. A zero
	// time is no bound. An error of fn ends the walk and is returned.
	EachUsage(ctx context.Context, from, to time.Time, fn func(Usage) error) error
	// OpenUsage calls fn for every piece without an end, and for the row of kind [UsageSeen].
	OpenUsage(ctx context.Context, fn func(Usage) error) error
}
