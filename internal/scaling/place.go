package scaling

import "math/rand/v2"

// Policy names a way to choose a node.
type Policy string

// The policies.
const (
	// Random takes any node that has room.
	Random Policy = "random"
	// LeastLoaded takes the node with the most room, as far as is known.
	LeastLoaded Policy = "least loaded"
	// TwoChoices takes the better of two random nodes.
	TwoChoices Policy = "two choices"
	// Packing takes the fullest node that has room, so that others stay empty.
	Packing Policy = "packing"
	// Locality takes the node that has the snapshot. If there is none, it takes one of a few nodes
	// that have a ready sandbox or the template, by two choices. It does so unless this node is
	// busier than another.
	Locality Policy = "locality"
)

// Policies are all of them.
var Policies = []Policy{Random, LeastLoaded, TwoChoices, Packing, Locality}

// view is a placer's knowledge of a node: its last report, and the sessions placed since.
type view struct {
	memory float64 // used, of all
	load   float64 // of the processors; 1 is all of them
	queue  float64 // seconds until a start would begin
}

// cost orders nodes. 0 is an empty node.
func (v view) cost() float64 { return v.memory + v.load/2 + v.queue }

// placer places sessions. Several placers work side by side. They do not know each other's
// decisions until the nodes report.
type placer struct {
	policy Policy
	views  []view
	rng    *rand.Rand
	sim    *Sim
}

// full is how much of a node's memory may be used before it gets no more sessions.
const full = 0.92

// fits reports whether a node seems to have room.
func (p *placer) fits(i int, s *session) bool {
	return p.views[i].memory+s.memory/p.sim.cfg.Node.MemoryMB <= full
}

// place chooses a node; −1 when none seems to have room.
func (p *placer) place(s *session) int {
	best := -1
	switch p.policy {
	case LeastLoaded, Packing:
		for i := range p.views {
			if !p.fits(i, s) {
				continue
			}
			if best < 0 || (p.policy == LeastLoaded) == (p.views[i].cost() < p.views[best].cost()) {
				if p.policy == Packing && (p.views[i].load > 0.8 || p.views[i].queue > 0.1) && best >= 0 {
					continue // no processor time left, even if memory is
				}
				best = i
			}
		}
	case Random:
		best = p.choose(1, s, func() int { return p.rng.IntN(len(p.views)) })
	case TwoChoices:
		best = p.two(s)
	case Locality:
		best = p.local(s)
	}
	if best < 0 {
		best = p.choose(8, s, func() int { return p.rng.IntN(len(p.views)) })
	}
	if best >= 0 {
		v := &p.views[best]
		v.memory += s.memory / p.sim.cfg.Node.MemoryMB
		v.load += s.cpu / float64(p.sim.cfg.Node.Processors)
		v.queue += p.sim.cfg.Costs.ColdCPU / float64(p.sim.cfg.Node.Processors)
	}
	return best
}

func (p *placer) two(s *session) int {
	return p.choose(2, s, func() int { return p.rng.IntN(len(p.views)) })
}

// choose takes the best of n nodes that from gives; −1 when the session fits none.
func (p *placer) choose(n int, s *session, from func() int) int {
	best := -1
	for range n {
		if i := from(); p.fits(i, s) && (best < 0 || p.views[i].cost() < p.views[best].cost()) {
			best = i
		}
	}
	return best
}

// slack is how much busier a node may be if it has something that another node would have to fetch.
// It is about the cost of fetching.
const slack = 0.25

// local prefers nodes that have the session's data already.
func (p *placer) local(s *session) int {
	other := p.two(s)
	prefer := -1
	if s.home >= 0 {
		prefer = s.home
	} else if n := p.sim.homes(s.template); n > 0 {
		// A template lives on a group of nodes. The group grows with the demand for the template.
		prefer = p.choose(2, s, func() int { return p.sim.homeOf(s.template, p.rng.IntN(n)) })
	}
	if prefer < 0 || !p.fits(prefer, s) {
		return other
	}
	if other >= 0 && p.views[prefer].cost() > p.views[other].cost()+slack {
		return other
	}
	return prefer
}
