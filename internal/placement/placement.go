// Package placement chooses a node for a sandbox. Package engine places real sandboxes with it, and
// package scaling simulates a thousand nodes with the very same code.
//
// # The rule
//
// [Placer.Place] looks at two nodes by chance and takes the better one. If some nodes have what the
// sandbox needs (its snapshot, a warm sandbox, its template), it prefers one of them, unless that
// one is much busier. Two choices are enough: a placer's knowledge of the nodes is always old, and
// a placer that took the emptiest node of all would send a whole burst to it.
//
// # What never happens
//
// A node that is away, draining, tainted or without the tier gets nothing new: [Able] leaves it
// out, and Place chooses only among the nodes that it is given.
//
// # Lies
//
// A node's report is a claim. A node that always says that it is empty wins each comparison, but it
// is one of the two choices for only 2/n of the sandboxes. [View.Known] is the part of the load
// that the placer knows by itself, and no report makes it less.
package placement

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/carrel-dev/carrel"
)

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

// View is a placer's knowledge of how busy a node is: its last report, and the work placed since.
type View struct {
	Memory float64 // used, of all
	Load   float64 // of the processors; 1 is all of them
	Queue  float64 // seconds until a start would begin
	Known  float64 // used memory, of all, as far as the placer knows without the node's report
}

// used is the part of the memory that counts as used.
func (v View) used() float64 { return max(v.Memory, v.Known) }

// Cost orders nodes. 0 is an empty node.
func (v View) Cost() float64 { return v.used() + v.Load/2 + v.Queue }

// Trusted returns the view with its numbers brought into the range that a real node can have.
func (v View) Trusted() View {
	in := func(f, most float64) float64 {
		if math.IsNaN(f) {
			return most
		}
		return min(max(f, 0), most)
	}
	return View{Memory: in(v.Memory, 1), Load: in(v.Load, 16), Queue: in(v.Queue, 3600), Known: in(v.Known, 1)}
}

// Node is what decides whether a node may get something new at all.
type Node struct {
	// Away is set for a node that does not answer. Draining is set for one that is being emptied.
	Away, Draining bool
	// Taints keep everything away that does not tolerate all of them.
	Taints []string
	// Tiers are the tiers that work on the node.
	Tiers []carrel.Tier
}

// Needs is what a sandbox demands of its node.
type Needs struct {
	Tier      carrel.Tier // "" is any
	Tolerates func(taint string) bool
}

// May reports whether the node may get a sandbox with these needs.
func (n Node) May(w Needs) bool {
	if n.Away || n.Draining || w.Tier != "" && !slices.Contains(n.Tiers, w.Tier) {
		return false
	}
	return !slices.ContainsFunc(n.Taints, func(t string) bool {
		return w.Tolerates == nil || !w.Tolerates(t)
	})
}

// Able returns the places of the nodes that may get a sandbox with these needs. It is never nil.
func Able(nodes []Node, w Needs) []int {
	able := make([]int, 0, len(nodes))
	for i, n := range nodes {
		if n.May(w) {
			able = append(able, i)
		}
	}
	return able
}

// Work is one sandbox to place. Its sizes are parts of a node, as in a [View].
type Work struct {
	Memory, Load, Queue float64
	// Able are the nodes that may get it; nil is all.
	Able []int
	// Home is the node that has its snapshot; −1 without one.
	Home int
	// Near returns one of the nodes that have a ready sandbox or the template, by chance; nil
	// without such nodes.
	Near func(rng *rand.Rand) int
	// Crowd is an additional cost of a node for this sandbox, such as for others of its project
	// that are there. Nil is none.
	Crowd func(node int) float64
}

// Placer places sandboxes. Several placers work side by side. They do not know each other's
// decisions until the nodes report. A Placer is not safe for concurrent use.
type Placer struct {
	Policy Policy
	Views  []View // of all nodes
	Rand   *rand.Rand
}

// full is how much of a node's memory may be used before it gets nothing new.
const full = 0.92

// slack is how much busier a node may be if it has something that another node would have to fetch.
// It is about the cost of fetching.
const slack = 0.25

// tries is how many random nodes are tried when the policy found none with room.
const tries = 8

// small is the most nodes that are all looked at, when chance found none with room. In a small
// fleet chance may miss the only one. In a large fleet that is full, looking at all would not help.
const small = 32

// busyLoad and busyQueue are when [Packing] leaves a node alone although it has memory.
const (
	busyLoad  = 0.8
	busyQueue = 0.1
)

// Place chooses a node and counts the work there; −1 when none seems to have room.
func (p *Placer) Place(w Work) int {
	best := -1
	switch p.Policy {
	case LeastLoaded, Packing:
		best = p.extreme(w)
	case Random:
		best = p.choose(w, 1, w.any(p))
	case TwoChoices:
		best = p.choose(w, 2, w.any(p))
	case Locality:
		best = p.local(w)
	}
	if best < 0 {
		best = p.choose(w, tries, w.any(p))
	}
	if n := w.count(p); best < 0 && n <= small {
		i := -1
		best = p.choose(w, n, func() int { i++; return w.at(i) })
	}
	if best >= 0 {
		v := &p.Views[best]
		v.Memory += w.Memory
		v.Known += w.Memory
		v.Load += w.Load
		v.Queue += w.Queue
	}
	return best
}

// count is the number of nodes that may get the work.
func (w Work) count(p *Placer) int {
	if w.Able != nil {
		return len(w.Able)
	}
	return len(p.Views)
}

// at is the i-th of them.
func (w Work) at(i int) int {
	if w.Able != nil {
		return w.Able[i]
	}
	return i
}

// any returns a function that gives one of them by chance.
func (w Work) any(p *Placer) func() int {
	n := w.count(p)
	return func() int {
		if n == 0 {
			return -1
		}
		return w.at(p.Rand.IntN(n))
	}
}

// fits reports whether a node may get the work, and seems to have room.
func (p *Placer) fits(i int, w Work) bool {
	return i >= 0 && i < len(p.Views) && p.Views[i].used()+w.Memory <= full
}

// cost is what it costs to place the work on a node.
func (p *Placer) cost(i int, w Work) float64 {
	c := p.Views[i].Cost()
	if w.Crowd != nil {
		c += w.Crowd(i)
	}
	return c
}

// extreme looks at all nodes, for the emptiest or the fullest one.
func (p *Placer) extreme(w Work) int {
	best := -1
	for k := range w.count(p) {
		i := w.at(k)
		if !p.fits(i, w) {
			continue
		}
		if best < 0 || (p.Policy == LeastLoaded) == (p.cost(i, w) < p.cost(best, w)) {
			busy := p.Views[i].Load > busyLoad || p.Views[i].Queue > busyQueue
			if p.Policy == Packing && busy && best >= 0 {
				continue // no processor time left, even if memory is
			}
			best = i
		}
	}
	return best
}

// choose takes the best of n nodes that from gives; −1 when the work fits none.
func (p *Placer) choose(w Work, n int, from func() int) int {
	best := -1
	for range n {
		if i := from(); p.fits(i, w) && (best < 0 || p.cost(i, w) < p.cost(best, w)) {
			best = i
		}
	}
	return best
}

// local prefers nodes that have the work's data already.
func (p *Placer) local(w Work) int {
	other := p.choose(w, 2, w.any(p))
	prefer := -1
	if w.Home >= 0 {
		if w.Able == nil || slices.Contains(w.Able, w.Home) {
			prefer = w.Home
		}
	} else if w.Near != nil {
		prefer = p.choose(w, 2, func() int { return w.Near(p.Rand) })
	}
	if prefer < 0 || !p.fits(prefer, w) {
		return other
	}
	if other >= 0 && p.cost(prefer, w) > p.cost(other, w)+slack {
		return other
	}
	return prefer
}
