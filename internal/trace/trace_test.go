package trace

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

const id = carrel.ID("i0123456789abcdef0123")

func TestSpansKnowTheirParents(t *testing.T) {
	var exported []carrel.Trace
	r := New(func(tr carrel.Trace) { exported = append(exported, tr) })
	ctx, whole := r.Begin(context.Background(), "create", id)
	inner, part := Start(ctx, "driver")
	leaf := Mark(inner, "cgroup")
	leaf.Set("name", "x")
	leaf.EndWith(errors.New("no room"))
	Add(inner, "earlier", time.Now().Add(-time.Hour), time.Second)
	part.End()
	if len(exported) != 0 {
		t.Fatal("exported before its end")
	}
	whole.End()
	whole.End()
	if len(exported) != 1 {
		t.Fatalf("exported %d times", len(exported))
	}
	spans := exported[0].Spans
	if len(spans) != 4 || spans[0].Name != "create" || spans[1].Name != "earlier" {
		t.Fatalf("%+v", spans)
	}
	byName := map[string]carrel.Span{}
	for _, s := range spans {
		byName[s.Name] = s
	}
	if byName["driver"].Parent != byName["create"].ID || byName["cgroup"].Parent != byName["driver"].ID || byName["create"].Parent != "" {
		t.Errorf("parents: %+v", spans)
	}
	if c := byName["cgroup"]; c.Error != "no room" || c.Fields["name"] != "x" || c.Open {
		t.Errorf("%+v", c)
	}
	if e := byName["earlier"]; e.Duration != time.Second {
		t.Errorf("%+v", e)
	}
}

func TestNothingIsRecordedWithoutARecorder(t *testing.T) {
	var r *Recorder
	ctx, s := r.Begin(context.Background(), "create", id)
	ctx, part := Start(ctx, "driver")
	part.Set("a", "b")
	Mark(ctx, "x").End()
	Add(ctx, "y", time.Now(), 1)
	part.End()
	s.EndWith(errors.New("x"))
	if r.Of(id) != nil || part != nil {
		t.Error("something was recorded")
	}
}

func TestBeginInsideAnOperationIsAPartOfIt(t *testing.T) {
	r := New(nil)
	ctx, whole := r.Begin(context.Background(), "wake", id)
	_, part := r.Begin(ctx, "resume", id)
	part.End()
	whole.End()
	if got := r.Of(id); len(got) != 1 || len(got[0].Spans) != 2 {
		t.Errorf("%+v", got)
	}
}

func TestDetachedOperationsShareTheTrace(t *testing.T) {
	r := New(nil)
	const other = carrel.ID("i0123456789abcdef0124")
	ctx, whole := r.Begin(context.Background(), "fork", id)
	_, child := r.Begin(Detach(ctx), "create", other)
	_, later := r.Begin(Carry(context.Background(), ctx), "resume", other)
	child.End()
	later.End()
	whole.End()
	mine, theirs := r.Of(id), r.Of(other)
	if len(mine) != 1 || len(theirs) != 2 {
		t.Fatalf("%+v %+v", mine, theirs)
	}
	for _, tr := range theirs {
		if tr.ID != mine[0].ID || tr.Spans[0].Parent != mine[0].Spans[0].ID || len(tr.Spans) != 1 {
			t.Errorf("%+v", tr)
		}
	}
}

func TestRingForgetsTheOldest(t *testing.T) {
	r := New(nil)
	for i := range kept + 10 {
		_, s := r.Begin(context.Background(), fmt.Sprint(i), id)
		for range 2 {
			s.End()
		}
	}
	got := r.Of(id)
	if len(got) != kept || got[0].Spans[0].Name != "10" || got[kept-1].Spans[0].Name != fmt.Sprint(kept+9) {
		t.Errorf("%d kept, the first %q", len(got), got[0].Spans[0].Name)
	}
	if len(r.Of("iother")) != 0 {
		t.Error("another sandbox's")
	}
}

func TestSpansOfOneOperationAreBounded(t *testing.T) {
	r := New(nil)
	ctx, s := r.Begin(context.Background(), "create", id)
	for range 2 * maxSpans {
		Mark(ctx, "part").End()
	}
	s.End()
	if got := r.Of(id); len(got[0].Spans) != maxSpans {
		t.Errorf("%d spans", len(got[0].Spans))
	}
}

func TestTraceParent(t *testing.T) {
	const trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	good := "00-" + trace + "-" + parent + "-01"
	for header, want := range map[string]bool{
		good:                               true,
		"":                                 false,
		good + "-x":                        false,
		"01" + good[2:] + "-more":          true,
		"01" + good[2:] + "more":           false,
		"ff" + good[2:]:                    false,
		strings.ToUpper(good):              false,
		strings.Replace(good, "4", "g", 1): false,
		"00-" + strings.Repeat("0", 32) + "-" + parent + "-01": false,
		"00-" + trace + "-" + strings.Repeat("0", 16) + "-01":  false,
	} {
		r := New(nil)
		_, s := r.Begin(Arrive(context.Background(), header), "create", id)
		s.End()
		got := r.Of(id)[0]
		if (got.ID == trace && got.Spans[0].Parent == parent) != want {
			t.Errorf("%q: trace %s, parent %q", header, got.ID, got.Spans[0].Parent)
		}
		if got.Spans[1].Name != "request" || len(got.ID) != 32 {
			t.Errorf("%q: %+v", header, got)
		}
	}
}

func FuzzTraceParent(f *testing.F) {
	f.Add("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	f.Fuzz(func(t *testing.T, s string) {
		if tr, p, _, ok := parseParent(s); ok == (tr == traceID{} || p == parentID{}) {
			t.Errorf("%q: %x %x %v", s, tr, p, ok)
		}
	})
}

func TestParallelParts(t *testing.T) {
	r := New(func(carrel.Trace) {})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			ctx, s := r.Begin(context.Background(), "create", id)
			var parts sync.WaitGroup
			for range 8 {
				parts.Go(func() { Mark(ctx, "part").End() })
			}
			r.Of(id)
			s.End() // some parts may come later
			parts.Wait()
		})
	}
	all.Wait()
	for _, tr := range r.Of(id) {
		if len(tr.Spans) != 9 {
			t.Errorf("%d spans", len(tr.Spans))
		}
	}
}

func BenchmarkSpan(b *testing.B) {
	for name, r := range map[string]*Recorder{"on": New(nil), "off": nil} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			ctx, _ := r.Begin(context.Background(), "create", id)
			for i := range b.N {
				if i%100 == 99 {
					ctx, _ = r.Begin(context.Background(), "create", id)
				}
				_, s := Start(ctx, "part")
				s.End()
			}
		})
	}
}
