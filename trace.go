package carrel

import (
	"context"
	"time"
)

// Trace is one operation on a sandbox, measured: how long each of its parts took.
type Trace struct {
	// ID is a W3C trace ID. If the request carried a trace of its own, it is that trace's ID.
	ID string `json:"traceID"`
	// Spans are the parts, in order of their start. The first one is the whole operation.
	Spans []Span `json:"spans"`
}

// Span is one part of a [Trace].
type Span struct {
	ID     string `json:"spanID"`
	Parent string `json:"parentID,omitempty"` // first span: the caller's span, if it named one
	Name   string `json:"name"`
	// Start is when the span began. Duration is 0 while it is Open.
	Start    time.Time         `json:"start"`
	Duration time.Duration     `json:"duration"` // nanoseconds
	Open     bool              `json:"open,omitempty"`
	Error    string            `json:"error,omitempty"`
	Fields   map[string]string `json:"fields,omitempty"`
}

// Tracer reports where an operation's time went.
type Tracer interface {
	// Traces returns the latest operations on a sandbox, oldest first, also for one that is gone.
	// The service keeps a limited number, for all sandboxes together. Errors: NotFound, Unsupported
	// (the daemon keeps none).
	Traces(ctx context.Context, id ID) ([]Trace, error)
}
