package placement_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/placement"
)

const placements = 10_000

// TestNeverTheWrongNode places ten thousand sandboxes on nodes that come, go, drain and get taints
// all the time. Reports are a hundred placements old. No wrong node gets one.
func TestNeverTheWrongNode(t *testing.T) {
	for _, policy := range placement.Policies {
		t.Run(string(policy), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			nodes := make([]placement.Node, 40)
			p := placement.Placer{Policy: policy, Views: make([]placement.View, len(nodes)), Rand: rng}
			tiers := []carrel.Tier{carrel.Sim, carrel.GVisor, carrel.MicroVM}
			got := 0
			for i := range placements {
				if i%100 == 0 {
					for k := range nodes {
						nodes[k] = placement.Node{Away: rng.IntN(5) == 0, Draining: rng.IntN(5) == 0,
							Tiers: tiers[:1+rng.IntN(3)]}
						if rng.IntN(4) == 0 {
							nodes[k].Taints = []string{"gpu"}
						}
						p.Views[k] = placement.View{Memory: rng.Float64(), Load: rng.Float64(), Queue: rng.Float64()}
					}
				}
				needs := placement.Needs{Tier: tiers[rng.IntN(3)]}
				if tolerant := rng.IntN(2) == 0; tolerant {
					needs.Tolerates = func(taint string) bool { return taint == "gpu" }
				}
				w := placement.Work{Memory: 0.001, Able: placement.Able(nodes, needs), Home: rng.IntN(len(nodes)+1) - 1}
				if rng.IntN(2) == 0 && len(w.Able) > 0 {
					near := w.Able[:1+len(w.Able)/4]
					w.Near = func(r *rand.Rand) int { return near[r.IntN(len(near))] }
				}
				switch at := p.Place(w); {
				case at < 0 && len(w.Able) > 0 && slices.ContainsFunc(w.Able, func(k int) bool { return p.Views[k].Memory < 0.9 }):
					t.Fatalf("placement %d: none of %v took it", i, w.Able)
				case at < 0:
				case nodes[at].Away, nodes[at].Draining, !slices.Contains(nodes[at].Tiers, needs.Tier),
					len(nodes[at].Taints) > 0 && needs.Tolerates == nil:
					t.Fatalf("placement %d with %+v went to node %d: %+v", i, needs, at, nodes[at])
				default:
					got++
				}
			}
			if got < placements/2 {
				t.Errorf("only %d of %d were placed", got, placements)
			}
		})
	}
}

// spread places sandboxes by several placers, whose reports are late, and returns how many each
// node has. lie changes the reports of node 0.
func spread(t *testing.T, nodes, placers, late int, lie func(placement.View) placement.View) []int {
	t.Helper()
	count := make([]int, nodes)
	all := make([]placement.Placer, placers)
	rng := rand.New(rand.NewPCG(3, uint64(nodes)))
	for i := range all {
		all[i] = placement.Placer{Policy: placement.Locality, Views: make([]placement.View, nodes),
			Rand: rand.New(rand.NewPCG(uint64(i), 7))}
	}
	for i := range placements {
		if i%late == 0 {
			for k := range all {
				for n, c := range count {
					v := placement.View{Memory: float64(c) * 0.9 / placements}
					if n == 0 {
						v = lie(v)
					}
					v.Known = all[k].Views[n].Known // a report does not change what the placer knows
					all[k].Views[n] = v.Trusted()
				}
			}
		}
		at := all[rng.IntN(placers)].Place(placement.Work{Memory: 0.9 / placements, Home: -1})
		if at < 0 {
			t.Fatalf("placement %d found no room: %v", i, count)
		}
		count[at]++
	}
	return count
}

func honest(v placement.View) placement.View { return v }

// TestSpread bounds how uneven ten thousand placements may be: "most" is the bound, as a multiple
// of the mean. It grows with the age of the reports and with the number of nodes. What one period
// of old reports does unevenly, the next one evens out.
func TestSpread(t *testing.T) {
	for _, c := range []struct {
		nodes, placers, late int
		most                 float64 // of the mean
	}{
		{3, 1, 1, 1.03}, {10, 1, 1, 1.03}, {100, 1, 1, 1.10},
		{3, 3, 100, 1.05}, {10, 3, 100, 1.10}, {50, 3, 100, 1.20}, {50, 3, 1000, 1.50},
	} {
		t.Run(fmt.Sprintf("%d nodes, %d placers, every %d", c.nodes, c.placers, c.late), func(t *testing.T) {
			count := spread(t, c.nodes, c.placers, c.late, honest)
			mean := float64(placements) / float64(c.nodes)
			if most := float64(slices.Max(count)); most > c.most*mean {
				t.Errorf("the fullest has %.0f, the mean is %.0f: %v", most, mean, count)
			}
			if least := float64(slices.Min(count)); least < mean*(2-c.most)-1 {
				t.Errorf("the emptiest has %.0f, the mean is %.0f: %v", least, mean, count)
			}
		})
	}
}

// TestLies shows that a node that reports nonsense takes no more than its two choices, and that one
// that says it is full gets nothing.
func TestLies(t *testing.T) {
	const nodes = 10
	lies := map[string]struct {
		lie  func(placement.View) placement.View
		most int
	}{
		"empty":    {func(placement.View) placement.View { return placement.View{} }, placements * 2 / nodes},
		"negative": {func(placement.View) placement.View { return placement.View{Memory: -9, Load: -9, Queue: -9} }, placements * 2 / nodes},
		"infinite": {func(placement.View) placement.View { return placement.View{Memory: math.Inf(-1)} }, placements * 2 / nodes},
		"no number": {func(placement.View) placement.View {
			return placement.View{Memory: math.NaN(), Load: math.NaN(), Queue: math.NaN()}
		}, 0},
		"full": {func(placement.View) placement.View { return placement.View{Memory: 5} }, 0},
	}
	for name, c := range lies {
		if count := spread(t, nodes, 3, 100, c.lie); count[0] > c.most*11/10 {
			t.Errorf("%s: the liar has %d of %d: %v", name, count[0], placements, count)
		}
	}
}

// TestPrefers shows that a warm node is taken unless it is much busier, and a snapshot's node, too.
func TestPrefers(t *testing.T) {
	for _, c := range []struct {
		busy float64
		home int
		near bool
		want bool
	}{
		{0.2, 4, false, true}, {0.2, -1, true, true}, {0.6, 4, false, false}, {0.6, -1, true, false},
	} {
		p := placement.Placer{Policy: placement.Locality, Views: make([]placement.View, 8), Rand: rand.New(rand.NewPCG(1, 1))}
		p.Views[4].Memory = c.busy
		w := placement.Work{Home: c.home}
		if c.near {
			w.Near = func(*rand.Rand) int { return 4 }
		}
		if got := p.Place(w) == 4; got != c.want {
			t.Errorf("%+v: taken is %v", c, got)
		}
	}
}

// TestCrowd shows that sandboxes of one project spread over nodes that are equal otherwise.
func TestCrowd(t *testing.T) {
	p := placement.Placer{Policy: placement.Locality, Views: make([]placement.View, 4), Rand: rand.New(rand.NewPCG(1, 1))}
	count := make([]int, 4)
	for range 400 {
		count[p.Place(placement.Work{Home: -1, Crowd: func(i int) float64 { return float64(count[i]) / 1000 }})]++
	}
	if slices.Max(count)-slices.Min(count) > 12 {
		t.Errorf("a project's sandboxes are at %v", count)
	}
}

// TestOnlyRoom finds the only node that has room.
func TestOnlyRoom(t *testing.T) {
	p := placement.Placer{Policy: placement.Locality, Views: make([]placement.View, 30), Rand: rand.New(rand.NewPCG(1, 1))}
	for i := range p.Views {
		p.Views[i].Memory = 0.99
	}
	p.Views[17].Memory = 0.5
	if at := p.Place(placement.Work{Home: -1}); at != 17 {
		t.Errorf("it went to %d", at)
	}
	if at := p.Place(placement.Work{Home: -1, Able: []int{}}); at != -1 {
		t.Errorf("with no node at all it went to %d", at)
	}
}
