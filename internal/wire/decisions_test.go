package wire_test

import (
	"slices"
	"sync"

	"github.com/carrel-dev/carrel"
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
