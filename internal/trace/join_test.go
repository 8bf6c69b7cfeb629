package trace

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

const (
	traceA = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	traceB = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
)

// exported collects what a recorder exports.
type exported struct {
	mu  sync.Mutex
	all []carrel.Trace
}

func (e *exported) take(t carrel.Trace) { e.mu.Lock(); defer e.mu.Unlock(); e.all = append(e.all, t) }

// last returns the trace and the parent of the newest span, and forgets all.
func (e *exported) last() (trace, parent string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.all) == 0 {
		return "", ""
	}
	t := e.all[len(e.all)-1]
	e.all = nil
	return t.ID, t.Spans[0].Parent
}

// TestHappened asks whose the things are that happen in a sandbox.
func TestHappened(t *testing.T) {
	var e exported
	r := New(e.take)
	now := func() (trace, parent string) {
		e.last()
		r.Happened(id, Egress, time.Now(), 0, nil, "")
		return e.last()
	}
	if got, _ := now(); got != "" {
		t.Errorf("without a client's trace: %s", got)
	}
	_, made := r.Begin(Arrive(context.Background(), traceA), "create", id)
	made.End()
	if got, _ := now(); got != traceA[3:35] {
		t.Errorf("after the creation: %s", got)
	}
	b := r.Visit([]string{traceB}, "exec", id)
	if got, _ := now(); got != traceB[3:35] {
		t.Errorf("in a command: %s", got)
	}
	second := r.Visit([]string{traceB}, "exec", id)
	if got, parent := now(); got != traceB[3:35] || parent != fmt.Sprintf("%x", second.at.span) {
		t.Errorf("in two commands of one trace: %s", got)
	}
	other := r.Visit([]string{traceA}, "exec", id)
	if got, parent := now(); got != traceA[3:35] || parent == fmt.Sprintf("%x", other.at.span) {
		t.Errorf("in commands of two traces it is the creation's: %s %s", got, parent)
	}
	for _, v := range []*Visit{b, second, other} {
		v.End(200)
		v.End(500)
	}
	e.last()
	r.Happened(id, Egress, time.Now().Add(visitSlack+time.Minute), 0, nil, "")
	if got, _ := e.last(); got != traceA[3:35] {
		t.Errorf("after all commands: %s", got)
	}
}

// TestVisitsOfNoTrace begins visits that nobody records, and very many that somebody does.
func TestVisitsOfNoTrace(t *testing.T) {
	var e exported
	r := New(e.take)
	for _, headers := range [][]string{nil, {""}, {"x"}, {traceA, traceA}, {traceA[:len(traceA)-1] + "0"}} {
		if v := r.Visit(headers, "exec", id); v != nil {
			t.Errorf("%q is recorded", headers)
		}
	}
	if New(nil).Visit([]string{traceA}, "exec", id) != nil || (*Recorder)(nil).Visit([]string{traceA}, "exec", id) != nil {
		t.Error("recorded without an exporter")
	}
	(*Visit)(nil).End(200)
	(*Recorder)(nil).Happened(id, Egress, time.Now(), 0, nil, "")
	for i := range 2 * maxJoined {
		r.Visit([]string{traceA}, "exec", carrel.ID(fmt.Sprint(i)))
	}
	for range 3 * maxVisits {
		r.Visit([]string{traceA}, "exec", id)
	}
	if n, m := len(r.joined.of), len(r.joined.of[id].visits); n > maxJoined || m > maxVisits {
		t.Errorf("%d sandboxes, %d visits", n, m)
	}
}

// TestUnsampled shows that a trace that its client does not record is kept here only.
func TestUnsampled(t *testing.T) {
	var e exported
	r := New(e.take)
	ctx, s := r.Begin(Arrive(context.Background(), traceA[:len(traceA)-1]+"0"), "fork", id)
	_, child := r.Begin(Detach(ctx), "create", "iother")
	child.End()
	s.End()
	if len(e.all) != 0 || len(r.Of(id)) != 1 || len(r.Of("iother")) != 1 {
		t.Errorf("%d exported, %d kept", len(e.all), len(r.Of(id)))
	}
}

// TestWatch counts operations, also those within others.
func TestWatch(t *testing.T) {
	r := New(nil)
	var got []string
	r.Watch(func(name string, _ time.Duration, err error) { got = append(got, fmt.Sprint(name, " ", err)) })
	ctx, s := r.Begin(context.Background(), "fork", id)
	_, inner := r.Begin(ctx, "pause", id)
	Mark(ctx, "part").End()
	inner.EndWith(context.Canceled)
	inner.End()
	s.End()
	if fmt.Sprint(got) != "[pause context canceled fork <nil>]" {
		t.Error(got)
	}
}

// TestVisitsAtOnce is the hammer of joined.mu.
func TestVisitsAtOnce(t *testing.T) {
	var e exported
	r := New(e.take)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 200 {
				v := r.Visit([]string{[]string{traceA, traceB}[i%2]}, "exec", carrel.ID(fmt.Sprint(n%3)))
				r.Happened(carrel.ID(fmt.Sprint(n%3)), Egress, time.Now(), 0, nil, "")
				v.End(200)
			}
		})
	}
	all.Wait()
	if len(e.all) < 1600 {
		t.Errorf("%d exported", len(e.all))
	}
}

// BenchmarkVisit is what a request to a port of a sandbox pays for being traced, or not.
func BenchmarkVisit(b *testing.B) {
	r := New(func(carrel.Trace) {})
	for name, headers := range map[string][]string{"traced": {traceA}, "without a header": nil} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.Visit(headers, "exec", id).End(200)
			}
		})
	}
}
