package carrel

import (
	"context"
	"time"
)

// Trace is one operation on a sandbox, measured: how long each of its parts took.
type Trace struct {
	// ID is a W3C trace ID: that of the request's own trace, where it carried one.
	ID string `json:"traceID"`
	// Spans are the parts in the order in which they began. The first is the whole.
	Spans []Span `json:"spans"`
}

// Span is one part of a [Trace].
type Span struct {
	ID     string `json:"spanID"`
	Parent string `json:"parentID,omitempty"` // of the first one: the caller's span, if it named one
	Name   string `json:"name"`
	// Start is when it began; Duration is 0 while Open.
	Start    time.Time         `json:"start"`
	Duration time.Duration     `json:"duration"` // nanoseconds
	Open     bool              `json:"open,omitempty"`
	Error    string            `json:"error,omitempty"`
	Fields   map[string]string `json:"fields,omitempty"`
}

// Tracer says where an operation's time went.
type Tracer interface {
	// Traces returns the latest operations on a sandbox, oldest first, also when it is gone. Only so many are
	// kept, of all sandboxes together. Errors: NotFound, Unsupported (the daemon keeps none).
	Traces(ctx context.Context, id ID) ([]Trace, error)
}
