package wire_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// decisions is an audit log.
type decisions struct {
	mu   sync.Mutex
	list []carrel.Decision
}

func (l *decisions) add(d carrel.Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, d)
}

func (l *decisions) all() []carrel.Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

func (l *decisions) refused() bool {
	return slices.ContainsFunc(l.all(), func(d carrel.Decision) bool { return !d.Allowed && d.Rule != "" && d.Reason != "" })
}

// until waits for n events and returns them.
func (l *decisions) until(t testing.TB, n int) []carrel.Decision {
	t.Helper()
	testenv.Eventually(t, "the events are written", func() bool { return len(l.all()) >= n })
	if got := l.all(); len(got) > n {
		t.Errorf("%d events, want %d: %+v", len(got), n, got)
	}
	return l.all()
}
