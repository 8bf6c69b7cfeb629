package guest

import (
	"context"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/trace"
)

func TestPhasesReachTheTrace(t *testing.T) {
	var p Phases
	p.End("main")
	p.End("listen")
	r := trace.New(nil)
	ctx, s := r.Begin(context.Background(), "create", "i0123456789abcdef0123")
	recordPhases(ctx, p.Take())
	s.End()
	spans := r.Of("i0123456789abcdef0123")[0].Spans
	if len(spans) != 3 || spans[1].Name != "guest: main" || spans[2].Name != "guest: listen" || spans[2].Duration < 0 {
		t.Errorf("%+v", spans)
	}
	if p.End("late"); p.Take() != "" {
		t.Error("told twice")
	}
}

// TestHostilePhases sends headers that a hostile guest could send.
func TestHostilePhases(t *testing.T) {
	r := trace.New(nil)
	ctx, s := r.Begin(context.Background(), "create", "i0123456789abcdef0123")
	for _, header := range []string{"", "=", "a", "a=b", "a=1,", "\x1b[2J=1", strings.Repeat("x", 100) + "=1", strings.Repeat("a=1,", 1000),
		"a=9223372036854775807,b=-9223372036854775808"} {
		recordPhases(ctx, header)
	}
	s.End()
	for _, span := range r.Of("i0123456789abcdef0123")[0].Spans {
		if span.Duration < 0 || strings.Contains(span.Name, "\x1b") || len(span.Name) > 40 {
			t.Errorf("%+v", span)
		}
	}
}
