package scaling

import (
	"math/rand/v2"

	"github.com/carrel-dev/carrel/internal/placement"
)

// Policy names a way to choose a node.
type Policy = placement.Policy

// The policies of package placement, by whose code the simulation places sessions.
const (
	Random      = placement.Random
	LeastLoaded = placement.LeastLoaded
	TwoChoices  = placement.TwoChoices
	Packing     = placement.Packing
	Locality    = placement.Locality
)

// Policies are all of them.
var Policies = placement.Policies

// place chooses a node for a session; −1 when none seems to have room.
func (s *Sim) place(p *placement.Placer, x *session) int {
	processors := float64(s.cfg.Node.Processors)
	w := placement.Work{Memory: x.memory / s.cfg.Node.MemoryMB, Load: x.cpu / processors,
		Queue: s.cfg.Costs.ColdCPU / processors, Home: x.home, Able: s.able}
	if n := s.homes(x.template); n > 0 {
		// A template lives on a group of nodes. The group grows with the demand for the template.
		w.Near = func(rng *rand.Rand) int { return s.living(x.template, rng.IntN(n), n) }
	}
	return p.Place(w)
}

// living returns the k-th of a template's n nodes, or the next of them that is not known to be dead.
func (s *Sim) living(template, k, n int) int {
	for tries := range n {
		if i := s.homeOf(template, (k+tries)%n); !s.nodes[i].known {
			return i
		}
	}
	return s.homeOf(template, k)
}
