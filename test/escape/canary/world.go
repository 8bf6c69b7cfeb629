package canary

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/carrel-dev/carrel/internal/pki"
	"github.com/carrel-dev/carrel/test/escape/plan"
)

// World is everything outside: all sites of package plan.
type World struct {
	CA       *pki.CA // vouches for all names
	Canaries []*Canary
	// SeesQuestions means that a resolver calls Asked.
	SeesQuestions bool

	mu        sync.Mutex
	questions [][]byte // DNS questions that reached the outside

	Names map[string][]string // what the resolver knows
	Dial  map[string]string   // the real places of the addresses
}

// NewWorld starts a world that ends with the test.
func NewWorld(t testing.TB) *World {
	t.Helper()
	ca, err := pki.New("Test authority")
	if err != nil {
		t.Fatal(err)
	}
	w := &World{CA: ca, Names: make(map[string][]string), Dial: make(map[string]string)}
	for name, site := range map[string]plan.Site{"allowed": plan.Allowed, "quiet": plan.Quiet, "denied": plan.Denied,
		"resolver": plan.Resolver, "echo": plan.Echo} {
		w.add(t, name, site.V4, site.V6)
		if site.Name != "" {
			w.Names[site.Name] = []string{site.V4, site.V6}
		}
	}
	w.Names[plan.Shared.Name] = []string{plan.Shared.V4, plan.Shared.V6}
	w.Names["*."+plan.Wild] = []string{plan.Allowed.V4, plan.Allowed.V6}
	w.Names["*."+plan.Tunnel] = []string{plan.Denied.V4}
	w.Names["*."+plan.Denied.Name] = []string{plan.Denied.V4, plan.Denied.V6}
	for name, address := range plan.Rebound {
		w.Names[name] = []string{address}
	}
	w.add(t, "reserved", append(slices.Collect(maps.Values(plan.Rebound)), plan.Unreachable...)...)
	w.add(t, "disguised", plan.Disguised[:len(plan.Disguised)-1]...) // the last is Denied's own
	return w
}

// add starts a canary for some addresses.
func (w *World) add(t testing.TB, name string, addresses ...string) {
	t.Helper()
	c := New(t, name, "127.0.0.1", w.CA)
	w.Canaries = append(w.Canaries, c)
	for _, a := range addresses {
		w.Dial[a] = c.Address
		if ip := net.ParseIP(a).To4(); ip != nil {
			w.Dial[ip.String()] = c.Address // however it was spelled
		}
	}
}

// AddHost starts a canary on an address of this host other than loopback, if there is one, and
// returns the address.
func (w *World) AddHost(t testing.TB) []string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	var at []string
	for _, a := range addresses {
		n, ok := a.(*net.IPNet)
		if !ok || n.IP.IsLoopback() || n.IP.IsLinkLocalUnicast() {
			continue
		}
		host := n.IP.String()
		if n.IP.To4() == nil {
			host = "[" + host + "]"
		}
		c := New(t, "host "+host, host, w.CA)
		w.Canaries = append(w.Canaries, c)
		at = append(at, c.Address)
		w.Dial[n.IP.String()] = c.Address
	}
	loop := New(t, "host loopback", "127.0.0.1", w.CA)
	w.Canaries = append(w.Canaries, loop)
	return append(at, loop.Address)
}

// Add adds a canary that the test made.
func (w *World) Add(c *Canary) { w.Canaries = append(w.Canaries, c) }

// Asked writes a question down.
func (w *World) Asked(q *dns.Msg) {
	b, err := q.Pack()
	if err != nil {
		b = []byte(q.String())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.questions = append(w.questions, b)
}

// Questions returns the names and types of all questions.
func (w *World) Questions() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, b := range w.questions {
		m := new(dns.Msg)
		if err := m.Unpack(b); err != nil {
			out = append(out, fmt.Sprintf("%q", b))
			continue
		}
		for _, q := range m.Question {
			out = append(out, q.Name+" "+dns.TypeToString[q.Qtype])
		}
	}
	return out
}

// Arrived settles all canaries. found are the canaries where the markers of this run were found, by
// attempt. touched is everything that each canary received, for those that received anything.
func (w *World) Arrived(t testing.TB, p plan.Plan) (found map[string][]string, touched map[string]int) {
	t.Helper()
	found, touched = make(map[string][]string), make(map[string]int)
	mark := func(where string, b []byte) {
		for _, name := range p.Find(b) {
			if !slices.Contains(found[name], where) {
				found[name] = append(found[name], where)
			}
		}
	}
	for _, c := range w.Canaries {
		c.Settle(t)
		for _, b := range c.Seen() {
			touched[c.Name]++
			mark(c.Name, b)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.questions {
		touched["questions"]++
		mark("questions", b)
	}
	return found, touched
}

// Forget makes the world new.
func (w *World) Forget() {
	for _, c := range w.Canaries {
		c.Forget()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.questions = nil
}
