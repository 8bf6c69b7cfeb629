package trace

import (
	"encoding/hex"
	"strconv"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
)

// Egress is the name of the span of a decision about what may leave a sandbox.
const Egress = "egress"

const (
	// maxJoined bounds the sandboxes that are remembered with a client's trace, and maxVisits the
	// visits of one sandbox. visitKept is how long a visit that has ended is remembered, because a
	// connection of it may end later.
	maxJoined = 8192
	maxVisits = 64
	visitKept = 5 * time.Minute
	// visitSlack is how long after a visit's end something still counts as a part of it.
	visitSlack = time.Second
)

// place is a span of a client's trace.
type place struct {
	trace traceID
	span  parentID
}

// joined knows which traces of clients sandboxes belong to, so that what happens later, without a
// request, can be a part of them.
type joined struct {
	mu sync.Mutex
	of map[carrel.ID]*joinedTo
}

type joinedTo struct {
	// made is the latest operation on the sandbox that a client's trace went through; zero for none.
	made   place
	visits []*Visit // the newest last
}

// to returns the entry of a sandbox. It forgets another one when there are too many. The caller
// holds mu.
func (j *joined) to(id carrel.ID) *joinedTo {
	if j.of == nil {
		j.of = map[carrel.ID]*joinedTo{}
	}
	if t := j.of[id]; t != nil {
		return t
	}
	for other := range j.of {
		if len(j.of) < maxJoined {
			break
		}
		delete(j.of, other)
	}
	t := &joinedTo{}
	j.of[id] = t
	return t
}

// Visit is a request to a port of a sandbox that is part of a client's trace. A nil Visit is not
// recorded.
type Visit struct {
	recorder *Recorder
	sandbox  carrel.ID
	name     string
	at       place
	parent   parentID
	start    time.Time
	end      time.Time // zero while it goes on; guarded by joined.mu
}

// Visit begins a request to a port of a sandbox. headers are the values of its header traceparent.
// The request is recorded only if there is an exporter and its client records this trace. name must
// not be the client's choice.
func (r *Recorder) Visit(headers []string, name string, id carrel.ID) *Visit {
	if r == nil || r.export == nil || len(headers) != 1 {
		return nil
	}
	t, p, sampled, ok := parseParent(headers[0])
	if !ok || !sampled {
		return nil
	}
	v := &Visit{recorder: r, sandbox: id, name: name, at: place{t, newID()}, parent: p, start: time.Now()}
	r.joined.mu.Lock()
	defer r.joined.mu.Unlock()
	to := r.joined.to(id)
	kept := to.visits[:0]
	for _, old := range to.visits {
		if old.end.IsZero() || v.start.Sub(old.end) < visitKept {
			kept = append(kept, old)
		}
	}
	if len(kept) == maxVisits {
		kept = append(kept[:0], kept[1:]...)
	}
	to.visits = append(kept, v)
	return v
}

// End ends the request and exports it. status is the answer's.
func (v *Visit) End(status int) {
	if v == nil {
		return
	}
	now := time.Now()
	v.recorder.joined.mu.Lock()
	first := v.end.IsZero()
	if first {
		v.end = now
	}
	v.recorder.joined.mu.Unlock()
	if !first {
		return
	}
	s := carrel.Span{ID: hex.EncodeToString(v.at.span[:]), Parent: hex.EncodeToString(v.parent[:]), Name: v.name,
		Start: v.start.UTC().Round(0), Duration: now.Sub(v.start),
		Fields: map[string]string{"sandbox": string(v.sandbox), "status": strconv.Itoa(status)}}
	if status >= 500 {
		s.Error = "status " + strconv.Itoa(status)
	}
	v.recorder.export(carrel.Trace{ID: hex.EncodeToString(v.at.trace[:]), Spans: []carrel.Span{s}})
}

// made notes that an operation on a sandbox is part of a client's trace.
func (r *Recorder) made(id carrel.ID, at place) {
	r.joined.mu.Lock()
	defer r.joined.mu.Unlock()
	r.joined.to(id).made = at
}

// placeOf returns the span that something belongs to that happened in a sandbox. That is the visit
// that went on then. Among several visits of one trace, it is the newest. If visits of several
// traces went on, nobody can tell whose it is. Then, and without a visit, it is the operation that
// made the sandbox run.
func (r *Recorder) placeOf(id carrel.ID, at time.Time) (p place, ok bool) {
	r.joined.mu.Lock()
	defer r.joined.mu.Unlock()
	to := r.joined.of[id]
	if to == nil {
		return p, false
	}
	for _, v := range to.visits {
		if v.start.After(at) || !v.end.IsZero() && at.After(v.end.Add(visitSlack)) {
			continue
		}
		if ok && v.at.trace != p.trace {
			return to.made, to.made != place{}
		}
		p, ok = v.at, true
	}
	if !ok {
		return to.made, to.made != place{}
	}
	return p, true
}

// Joins reports whether Happened may export anything.
func (r *Recorder) Joins() bool { return r != nil && r.export != nil }

// Happened exports something that happened in a sandbox, if it is part of a client's trace.
func (r *Recorder) Happened(id carrel.ID, name string, at time.Time, took time.Duration, fields map[string]string, failure string) {
	if !r.Joins() {
		return
	}
	p, ok := r.placeOf(id, at)
	if !ok {
		return
	}
	span := newID()
	r.export(carrel.Trace{ID: hex.EncodeToString(p.trace[:]), Spans: []carrel.Span{{
		ID: hex.EncodeToString(span[:]), Parent: hex.EncodeToString(p.span[:]), Name: name,
		Start: at.UTC().Round(0), Duration: took, Fields: fields, Error: failure}}})
}
