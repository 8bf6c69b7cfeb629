package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// topFake is a service with two running sandboxes. One ends while the test looks at it.
type topFake struct{ carrel.Service }

func (topFake) List(context.Context, carrel.ListOptions) (carrel.Page, error) {
	return carrel.Page{Sandboxes: []carrel.Sandbox{
		{ID: "iaaaaaaaaaaaaaaaaaaa1", Name: "small"}, {ID: "iaaaaaaaaaaaaaaaaaaa2", Name: "large\x1b[2J"}, {ID: "iaaaaaaaaaaaaaaaaaaa3", Name: "gone"},
	}}, nil
}

func (topFake) Metrics(_ context.Context, id carrel.ID, _, _ time.Time) ([]carrel.Metric, error) {
	switch id[len(id)-1] {
	case '1':
		return []carrel.Metric{{CPUUsedPct: 99}, {CPUUsedPct: 1, MemUsed: 1 << 20}}, nil
	case '2':
		return []carrel.Metric{{CPUUsedPct: 50, MemUsed: 1 << 30}}, nil
	}
	return nil, &carrel.Error{Kind: carrel.NotFound, ID: id}
}

// TestTopIsWatched shows that the table is written in the same place, the largest first, and ends
// with the context. A sandbox's name can't move the cursor.
func TestTopIsWatched(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	screen := &untilTwice{end: cancel}
	a := topCommands{&app{out: screen, now: time.Now}}
	if err := a.watchUsage(ctx, topFake{}, "cpu", 0, 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	text := screen.String()
	if n := strings.Count(text, "\x1b[H"); n != 2 {
		t.Errorf("written %d times:\n%q", n, text)
	}
	if large, small := strings.Index(text, "large"), strings.Index(text, "small"); large < 0 || small < large {
		t.Errorf("the most is not first:\n%s", text)
	}
	if strings.Contains(text, "gone") || strings.Contains(text, "large\x1b") {
		t.Errorf("%q", text)
	}
}

// untilTwice calls a function after two writes.
type untilTwice struct {
	bytes.Buffer
	n   int
	end func()
}

// Write implements io.Writer.
func (w *untilTwice) Write(p []byte) (int, error) {
	if w.n++; w.n == 2 {
		w.end()
	}
	return w.Buffer.Write(p)
}
