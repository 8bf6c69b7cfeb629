// Package trace measures how an operation on a sandbox spends its time.
//
// # Use
//
// The code that begins an operation calls [Recorder.Begin], which puts the operation into the
// context. Code below calls [Start] with that context, and ends the [Span] that it got. If nothing
// is recorded, Start returns a nil Span. All methods of a nil Span do nothing, so no caller needs a
// check:
//
//	ctx, span := trace.Start(ctx, "cgroup")
//	defer span.End()
//
// A recorder keeps the latest operations of all sandboxes in a ring, so its memory is bounded. It
// gives each operation that has ended to its exporter.
//
// # Cost
//
// A span costs one allocation and two readings of the clock, less than a microsecond. Without a
// recorder it costs one look into the context.
//
// # Locks
//
// Recorder.mu guards the ring, operation.mu one operation's spans, and joined.mu what is known of
// clients' traces. No goroutine holds two of them at once.
//
// # Clients' traces
//
// A client's header traceparent makes an operation a part of the client's trace, and so does it with
// a request to a port of a sandbox ([Recorder.Visit]). What happens in the sandbox meanwhile, such as
// a connection to the outside, becomes a part of that ([Recorder.Happened]).
//
// Threat: a client sends anything in the header. Only the form of the specification is read, into
// fixed sizes; everything else is as if there were no header. No other header of tracing is read.
// A client can give its spans any trace ID, and so put them into somebody's trace at the collector.
// It can't read that trace. A sandbox chooses the names that it connects to, so they are values of
// fields, bounded and made valid by the exporter.
package trace

import (
	"context"
	"encoding/hex"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
)

const (
	kept     = 1024 // operations of all sandboxes together
	maxSpans = 256  // of one operation; later ones are not recorded
)

// Recorder keeps the latest operations. A nil Recorder records nothing.
type Recorder struct {
	export func(carrel.Trace)
	watch  func(name string, took time.Duration, err error) // nil for none

	mu   sync.Mutex
	ring [kept]*operation
	next int

	joined joined
}

// New returns a recorder. export, which may be nil, is called with each operation when it ends. It
// must not block.
func New(export func(carrel.Trace)) *Recorder { return &Recorder{export: export} }

// Watch makes the recorder tell the length of each operation that ends, also of those that are a
// part of another. fn must not block. Watch is called before the first operation begins.
func (r *Recorder) Watch(fn func(name string, took time.Duration, err error)) { r.watch = fn }

// operation is one trace, under way or ended.
type operation struct {
	sandbox  carrel.ID
	id       [16]byte
	recorder *Recorder
	// joined says that the trace is a client's, and unsampled that it must not be exported.
	joined, unsampled bool

	mu    sync.Mutex
	spans []span
}

type span struct {
	id, parent [8]byte
	name       string
	start      time.Time
	took       time.Duration
	ended      bool
	whole      bool // an operation by itself
	err        error
	fields     map[string]string
}

// Span is a part of an operation under way. A nil Span is not recorded.
type Span struct {
	op *operation
	i  int
}

type (
	spanKey  struct{}
	callKey  struct{}
	traceID  = [16]byte
	parentID = [8]byte
)

// Begin starts an operation on a sandbox and returns a context in which [Start] adds its parts. If
// ctx has an operation already, the new one becomes a part of that. If [Arrive] noted a request,
// the operation begins at the request's arrival and continues its caller's trace.
func (r *Recorder) Begin(ctx context.Context, name string, id carrel.ID) (context.Context, *Span) {
	if r == nil {
		return ctx, nil
	}
	if outer, _ := ctx.Value(spanKey{}).(*Span); outer != nil && outer.op.recorder == r {
		s := outer.add(name, time.Now(), 0, false)
		if s == nil {
			return ctx, nil
		}
		s.op.mu.Lock()
		s.op.spans[s.i].whole = true
		s.op.mu.Unlock()
		return context.WithValue(ctx, spanKey{}, s), s
	}
	op := &operation{sandbox: id, recorder: r, spans: make([]span, 0, 16)}
	now := time.Now()
	root := span{id: newID(), name: name, start: now, whole: true}
	if c, ok := ctx.Value(callKey{}).(call); ok {
		op.id, root.parent, op.joined, op.unsampled = c.trace, c.parent, c.joined, c.unsampled
		if !c.at.IsZero() {
			root.start = c.at
		}
		op.spans = append(op.spans, root)
		if !c.at.IsZero() {
			op.spans = append(op.spans, span{id: newID(), parent: root.id, name: "request", start: c.at, took: now.Sub(c.at), ended: true})
		}
	} else {
		op.spans = append(op.spans, root)
	}
	if op.id == (traceID{}) {
		op.id = newTraceID()
	}
	if op.joined && !op.unsampled && r.export != nil {
		r.made(id, place{op.id, root.id})
	}
	s := &Span{op: op}
	s.Set("sandbox", string(id))
	r.mu.Lock()
	r.ring[r.next] = op
	r.next = (r.next + 1) % kept
	r.mu.Unlock()
	return context.WithValue(ctx, spanKey{}, s), s
}

// Start begins a part of the operation in ctx. The returned context is for the parts of this part.
func Start(ctx context.Context, name string) (context.Context, *Span) {
	outer, _ := ctx.Value(spanKey{}).(*Span)
	s := outer.add(name, time.Now(), 0, false)
	if s == nil {
		return ctx, nil
	}
	return context.WithValue(ctx, spanKey{}, s), s
}

// Mark begins a part that has no parts of its own.
func Mark(ctx context.Context, name string) *Span {
	outer, _ := ctx.Value(spanKey{}).(*Span)
	return outer.add(name, time.Now(), 0, false)
}

// Add adds a part that was measured elsewhere.
func Add(ctx context.Context, name string, start time.Time, took time.Duration) {
	outer, _ := ctx.Value(spanKey{}).(*Span)
	outer.add(name, start, max(took, 0), true)
}

func (s *Span) add(name string, start time.Time, took time.Duration, ended bool) *Span {
	if s == nil {
		return nil
	}
	op := s.op
	op.mu.Lock()
	defer op.mu.Unlock()
	if len(op.spans) == maxSpans {
		return nil
	}
	op.spans = append(op.spans, span{id: newID(), parent: op.spans[s.i].id, name: name, start: start, took: took, ended: ended})
	return &Span{op: op, i: len(op.spans) - 1}
}

// End ends the part. Only the first call counts. The end of the whole operation hands it to the
// exporter.
func (s *Span) End() { s.EndWith(nil) }

// EndWith is End for a part that may have failed.
func (s *Span) EndWith(err error) {
	if s == nil {
		return
	}
	op := s.op
	op.mu.Lock()
	p := &op.spans[s.i]
	first := !p.ended
	if first {
		p.ended, p.took, p.err = true, time.Since(p.start), err
	}
	name, took, whole := p.name, p.took, p.whole
	op.mu.Unlock()
	if watch := op.recorder.watch; watch != nil && first && whole {
		watch(name, took, err)
	}
	if first && s.i == 0 && op.recorder.export != nil && !op.unsampled {
		op.recorder.export(op.public())
	}
}

// Set adds a key and a value to the part.
func (s *Span) Set(key, value string) {
	if s == nil {
		return
	}
	s.op.mu.Lock()
	defer s.op.mu.Unlock()
	p := &s.op.spans[s.i]
	if p.fields == nil {
		p.fields = map[string]string{}
	}
	p.fields[key] = value
}

// Of returns the recorded operations of a sandbox, oldest first.
func (r *Recorder) Of(id carrel.ID) []carrel.Trace {
	if r == nil {
		return nil
	}
	var ops []*operation
	r.mu.Lock()
	for i := range r.ring {
		if op := r.ring[(r.next+i)%kept]; op != nil && op.sandbox == id {
			ops = append(ops, op)
		}
	}
	r.mu.Unlock()
	out := make([]carrel.Trace, len(ops))
	for i, op := range ops {
		out[i] = op.public()
	}
	return out
}

// public returns a copy for readers, with its spans in the order of their start times.
func (op *operation) public() carrel.Trace {
	op.mu.Lock()
	defer op.mu.Unlock()
	t := carrel.Trace{ID: hex.EncodeToString(op.id[:]), Spans: make([]carrel.Span, len(op.spans))}
	for i, p := range op.spans {
		s := carrel.Span{ID: hex.EncodeToString(p.id[:]), Name: p.name, Start: p.start.UTC().Round(0), Duration: p.took, Open: !p.ended, Fields: maps.Clone(p.fields)}
		if p.parent != (parentID{}) {
			s.Parent = hex.EncodeToString(p.parent[:])
		}
		if p.err != nil {
			s.Error = p.err.Error()
		}
		t.Spans[i] = s
	}
	order(t.Spans[1:])
	return t
}

// newID returns a random span ID. It is not secret, so it need not be unpredictable.
func newID() (id [8]byte) {
	for n := rand.Uint64(); id == [8]byte{}; n = rand.Uint64() {
		for i := range id {
			id[i] = byte(n >> (8 * i))
		}
	}
	return id
}

func newTraceID() (id traceID) {
	a, b := newID(), newID()
	copy(id[:8], a[:])
	copy(id[8:], b[:])
	return id
}
