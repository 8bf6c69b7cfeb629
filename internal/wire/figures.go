package wire

import "sync/atomic"

// protocols are the protocols of decisions, in the order of their counts.
var protocols = [...]string{"tcp", "udp", "tls", "http", "https", "dns", "other"}

// decisions counts decisions: refused and allowed ones of each protocol.
type decisions [len(protocols)][2]atomic.Uint64

func (d *decisions) count(protocol string, allowed bool) {
	i := 0
	for i < len(protocols)-1 && protocols[i] != protocol {
		i++
	}
	verdict := 0
	if allowed {
		verdict = 1
	}
	d[i][verdict].Add(1)
}

// Figures are counts of a wire, for metrics.
type Figures struct {
	Links    int
	Conns    int   // open TCP connections to the outside
	Sessions int   // open UDP ones
	Sent     int64 // bytes of all frames that sandboxes sent, since the wire was made
	Received int64 // that they were sent
	// Allowed and Refused count decisions, by protocol.
	Allowed, Refused map[string]uint64
}

// Figures counts. It looks at each link shortly.
func (w *Wire) Figures() Figures {
	f := Figures{Allowed: map[string]uint64{}, Refused: map[string]uint64{}}
	for i, p := range protocols {
		f.Refused[p], f.Allowed[p] = w.decisions[i][0].Load(), w.decisions[i][1].Load()
	}
	w.mu.Lock()
	f.Links, f.Sent, f.Received = len(w.links), w.sent, w.received
	links := make([]*Link, 0, len(w.links))
	for _, l := range w.links {
		links = append(links, l)
		f.Sent += l.ep.inward.Load()
		f.Received += l.ep.outward.Load()
	}
	w.mu.Unlock()
	for _, l := range links {
		l.out.mu.Lock()
		f.Conns += l.out.conns
		f.Sessions += l.out.sessions
		l.out.mu.Unlock()
	}
	return f
}
