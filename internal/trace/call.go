package trace

import (
	"cmp"
	"context"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

// call is a request at its arrival.
type call struct {
	at     time.Time // zero: not known
	trace  traceID
	parent parentID
	// joined says that the trace is a client's, and unsampled that the client does not record it.
	joined, unsampled bool
}

// Arrive notes when a request came in and which trace it belongs to, by its header "traceparent"
// (W3C Trace Context), which may be empty. An operation that begins with the returned context
// continues that trace.
func Arrive(ctx context.Context, traceparent string) context.Context {
	c := call{at: time.Now()}
	var sampled bool
	c.trace, c.parent, sampled, c.joined = parseParent(traceparent)
	c.unsampled = c.joined && !sampled
	return context.WithValue(ctx, callKey{}, c)
}

// parseParent reads a header of version 00, or the beginning of a later version, as the
// specification requires. sampled says that the sender records the trace.
func parseParent(s string) (t traceID, p parentID, sampled, ok bool) {
	const form = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
	if len(s) < len(form) || (len(s) > len(form) && (s[:2] == "00" || s[len(form)] != '-')) {
		return t, p, false, false
	}
	parts := strings.Split(s[:len(form)], "-")
	if len(parts) != 4 || len(parts[0]) != 2 || parts[0] == "ff" || len(parts[1]) != 32 || len(parts[2]) != 16 || s != strings.ToLower(s) {
		return t, p, false, false
	}
	var flags [1]byte
	for _, f := range []struct {
		to   []byte
		text string
	}{{flags[:], parts[0]}, {t[:], parts[1]}, {p[:], parts[2]}, {flags[:], parts[3]}} {
		if _, err := hex.Decode(f.to, []byte(f.text)); err != nil {
			return traceID{}, parentID{}, false, false
		}
	}
	if t == (traceID{}) || p == (parentID{}) {
		return traceID{}, parentID{}, false, false
	}
	return t, p, flags[0]&1 != 0, true
}

// IDs returns the trace and the span that the work in ctx belongs to, as IDs of OpenTelemetry.
func IDs(ctx context.Context) (trace [16]byte, span [8]byte, ok bool) {
	s, _ := ctx.Value(spanKey{}).(*Span)
	if s != nil {
		s.op.mu.Lock()
		defer s.op.mu.Unlock()
		return s.op.id, s.op.spans[s.i].id, true
	}
	c, _ := ctx.Value(callKey{}).(call)
	return c.trace, c.parent, c.joined
}

// order sorts spans by their start times.
func order(spans []carrel.Span) {
	slices.SortStableFunc(spans, func(a, b carrel.Span) int { return cmp.Compare(a.Start.UnixNano(), b.Start.UnixNano()) })
}

// Detach returns a context whose next operation is separate, but in the same trace. It is for an
// operation on another sandbox, or one that outlives its caller.
func Detach(ctx context.Context) context.Context {
	outer, _ := ctx.Value(spanKey{}).(*Span)
	if outer == nil {
		return ctx
	}
	outer.op.mu.Lock()
	parent := outer.op.spans[outer.i].id
	outer.op.mu.Unlock()
	ctx = context.WithValue(ctx, callKey{}, call{trace: outer.op.id, parent: parent, joined: outer.op.joined, unsampled: outer.op.unsampled})
	return context.WithValue(ctx, spanKey{}, (*Span)(nil))
}

// Carry gives the request of from to the context to, which lives longer.
func Carry(to, from context.Context) context.Context {
	if c, ok := Detach(from).Value(callKey{}).(call); ok {
		return context.WithValue(to, callKey{}, c)
	}
	return to
}
