package certs

import (
	"sync"
	"time"
)

// hourly counts the new names of the last hour. A name that was allowed once stays allowed, because
// its certificate may need several tries.
type hourly struct {
	most int

	mu    sync.Mutex
	names map[string]time.Time
}

// take reports whether one more name is allowed.
func (h *hourly) take(now time.Time, name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for n, at := range h.names {
		if now.Sub(at) >= time.Hour {
			delete(h.names, n)
		}
	}
	if _, known := h.names[name]; known {
		return true
	}
	if len(h.names) >= h.most {
		return false
	}
	if h.names == nil {
		h.names = map[string]time.Time{}
	}
	h.names[name] = now
	return true
}
