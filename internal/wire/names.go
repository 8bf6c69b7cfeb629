package wire

import (
	"container/list"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// maxAnswers bounds how many addresses are remembered for one sandbox, and maxAnswerNames the
	// names of each.
	maxAnswers     = 8192
	maxAnswerNames = 16
	// answerGrace is how much longer than its time to live an answer is valid, because programs
	// keep addresses longer than they should.
	answerGrace = 10 * time.Minute
)

// answers remembers the addresses that a sandbox got from our resolver, and their names. Names are
// in lower case and without the last dot. It is safe for concurrent use.
type answers struct {
	now func() time.Time

	mu      sync.Mutex
	entries map[netip.Addr]*list.Element
	recent  list.List // of *answer; the most recently used is in front
}

type answer struct {
	addr  netip.Addr
	names []answerName // the latest in front
	held  int          // open connections to it
}

type answerName struct {
	name    string
	expires time.Time
}

func newAnswers() *answers {
	return &answers{now: time.Now, entries: make(map[netip.Addr]*list.Element)}
}

// learn notes that name has the address.
func (t *answers) learn(name string, addr netip.Addr, ttl time.Duration) {
	addr = addr.Unmap()
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[addr]
	if e == nil {
		t.makeRoom()
		e = t.recent.PushFront(&answer{addr: addr})
		t.entries[addr] = e
	}
	t.recent.MoveToFront(e)
	a := e.Value.(*answer)
	a.names = slices.DeleteFunc(a.names, func(n answerName) bool { return n.name == name })
	a.names = slices.Insert(a.names, 0, answerName{name, t.now().Add(ttl + answerGrace)})
	a.names = a.names[:min(len(a.names), maxAnswerNames)]
}

// makeRoom drops the address that was unused for the longest time. It keeps addresses with open
// connections. The bounds on connections bound their number.
func (t *answers) makeRoom() {
	for e := t.recent.Back(); e != nil && len(t.entries) >= maxAnswers; {
		a, before := e.Value.(*answer), e.Prev()
		if a.held == 0 {
			t.recent.Remove(e)
			delete(t.entries, a.addr)
		}
		e = before
	}
}

// names returns the names for which the sandbox got the address, the latest first.
func (t *answers) names(addr netip.Addr) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[addr.Unmap()]
	if e == nil {
		return nil
	}
	a, now := e.Value.(*answer), t.now()
	if a.held == 0 {
		a.names = slices.DeleteFunc(a.names, func(n answerName) bool { return now.After(n.expires) })
	}
	if len(a.names) == 0 {
		return nil
	}
	out := make([]string, len(a.names))
	for i, n := range a.names {
		out[i] = n.name
	}
	return out
}

// hold keeps an address and its names until release is called.
func (t *answers) hold(addr netip.Addr) (release func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[addr.Unmap()]
	if e == nil {
		return func() {}
	}
	a := e.Value.(*answer)
	a.held++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		a.held--
	}
}
