package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

func TestWaterfall(t *testing.T) {
	at := func(ms int) time.Time { return noon.Add(time.Duration(ms) * time.Millisecond) }
	tr := carrel.Trace{ID: "t", Spans: []carrel.Span{
		{ID: "1", Name: "create", Start: at(0), Duration: 40 * time.Millisecond},
		{ID: "3", Parent: "2", Name: "cgroup", Start: at(10), Duration: 10 * time.Millisecond, Error: "no room\x1b[2J"},
		{ID: "2", Parent: "1", Name: "driver", Start: at(10), Duration: 20 * time.Millisecond},
		{ID: "4", Parent: "1", Name: "greet", Start: at(30), Open: true},
	}}
	got := pen{ascii: true, width: 60}.waterfall(tr)
	want := []string{"create", "  driver", "    cgroup", "  greet"}
	lines := strings.Split(strings.TrimSpace(got), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%s", got)
	}
	for i, w := range want {
		if !strings.HasPrefix(lines[i], w) {
			t.Errorf("line %d: %q, want %q first", i, lines[i], w)
		}
	}
	if !strings.Contains(lines[0], "40.0 ms") || strings.Contains(got, "\x1b") || !strings.Contains(lines[2], "no room") {
		t.Errorf("%q", lines)
	}
	whole, part := strings.Count(lines[0], "#"), strings.Count(lines[1], "#")
	if whole < 2*part-1 || whole > 2*part+1 {
		t.Errorf("bars of %d and %d:\n%s", whole, part, got)
	}
}

// TestWaterfallOfNonsense draws invalid answers, because a daemon may send anything.
func TestWaterfallOfNonsense(t *testing.T) {
	for _, spans := range [][]carrel.Span{
		nil,
		{{ID: "1", Parent: "1"}},
		{{ID: "1", Parent: "2"}, {ID: "2", Parent: "1"}, {ID: "3", Parent: "3"}},
		{{ID: "1", Duration: -time.Hour}, {ID: "1", Start: noon, Duration: 1 << 62}, {ID: "", Parent: ""}},
	} {
		if got := (pen{width: 20}).waterfall(carrel.Trace{Spans: spans}); strings.Count(got, "\n") > len(spans)+1 {
			t.Errorf("%s", got)
		}
	}
}
