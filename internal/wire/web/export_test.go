package web

import (
	"time"

	"github.com/carrel-dev/carrel"
)

// SetHeadTimeout changes how long a request's head may take.
func (p *Proxy) SetHeadTimeout(d time.Duration) { p.headTimeout = d }

// Fill makes a sandbox have the most open requests that it may have, or none.
func (p *Proxy) Fill(id carrel.ID, full bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if delete(p.open, id); full {
		p.open[id] = maxOpen
	}
}

// Open returns how many requests of all sandboxes are open.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open)
}
