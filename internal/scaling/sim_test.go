package scaling

import (
	"math"
	"reflect"
	"testing"
)

// small is a short run: 50 nodes, two minutes.
func small(p Policy) Config {
	return Config{
		Seed: 1, Nodes: 50, Node: Node{Processors: 16, MemoryMB: 64 << 10, NetworkMBps: 1000}, Costs: Measured, Policy: p,
		Load:    Load{Rate: 50, Burst: 20, BurstShare: 0.3, Templates: 100, Skew: 1, Active: 60, Pauses: 0.7, Away: 30, WorkMB: 100, WorkCPU: 0.02},
		Seconds: 120, Warmup: 30, Placers: 3, Stale: 1, Warm: 8, Cache: 20, TemplateMB: 500, MaxWait: 20,
	}
}

func run(t *testing.T, c Config) Result {
	t.Helper()
	r, err := Run(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSameSeed shows that a run can be repeated.
func TestSameSeed(t *testing.T) {
	for _, p := range Policies {
		a, b := run(t, small(p)), run(t, small(p))
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s: %+v, and then %+v", p, a, b)
		}
		if a.Started == 0 || a.Resumed == 0 {
			t.Errorf("%s: nothing happened: %+v", p, a)
		}
	}
	other := small(Locality)
	other.Seed = 2
	if reflect.DeepEqual(run(t, small(Locality)), run(t, other)) {
		t.Error("another seed is the same run")
	}
}

// TestQueueing gives one processor work at random times. There is a formula for this queue: the
// mean wait of M/D/1 is ρ/(2(1−ρ)) services.
func TestQueueing(t *testing.T) {
	c := small(Random)
	c.Nodes, c.Node.Processors, c.Warm, c.Placers, c.TemplateMB = 1, 1, 0, 1, 0
	c.Node.MemoryMB = 1 << 30
	c.Costs.ColdCPU, c.Costs.ColdIdle = 0.1, 0
	c.Load = Load{Rate: 8, Templates: 1, Active: 1e-3}
	c.Seconds, c.Warmup, c.MaxWait = 4000, 100, math.Inf(1)
	r := run(t, c)
	// Result does not contain the mean, so check bounds that follow from it: half of the starts
	// wait less than the mean, which is 2 services here, and 19 of 20 less than ten.
	if r.P50 < 0.1 || r.P50 > 0.35 || r.P95 > 1.2 || r.P95 < 0.5 {
		t.Errorf("half within %v s, 19 of 20 within %v s, at 80 %% of capacity", r.P50, r.P95)
	}
	if want := 8 * 3900.0; math.Abs(float64(r.Started)-want) > 4*math.Sqrt(want) {
		t.Errorf("%d started, of about %.0f", r.Started, want)
	}
}

// TestPolicies checks the advantage of each policy.
func TestPolicies(t *testing.T) {
	by := map[Policy]Result{}
	for _, p := range Policies {
		by[p] = run(t, small(p))
	}
	if by[TwoChoices].Uneven >= by[Random].Uneven {
		t.Errorf("two choices are no more even than one: %v, %v", by[TwoChoices].Uneven, by[Random].Uneven)
	}
	if by[Packing].Empty <= by[LeastLoaded].Empty {
		t.Errorf("packing leaves %v empty, spreading %v", by[Packing].Empty, by[LeastLoaded].Empty)
	}
	if by[Locality].MovedGB >= by[TwoChoices].MovedGB/2 {
		t.Errorf("locality moves %v GB, without it %v", by[Locality].MovedGB, by[TwoChoices].MovedGB)
	}
	if by[Locality].WarmHits <= by[TwoChoices].WarmHits {
		t.Errorf("locality finds %v ready, without it %v", by[Locality].WarmHits, by[TwoChoices].WarmHits)
	}
}

// TestWarmPays shows that ready sandboxes make the usual start shorter, and use memory.
func TestWarmPays(t *testing.T) {
	none := small(Locality)
	none.Warm = 0
	a, b := run(t, none), run(t, small(Locality))
	if b.P50 >= a.P50 || b.WarmMB <= 0 || a.WarmHits != 0 {
		t.Errorf("without: %+v\nwith: %+v", a, b)
	}
}

// TestLimits checks how many sandboxes a node has room for.
func TestLimits(t *testing.T) {
	n := Node{Processors: 2, MemoryMB: 24 << 10, DiskMB: 1 << 20, Files: 1 << 20, Tasks: 1 << 15}
	for _, l := range Measured.Limits(n, 0.05) {
		if l.Most <= 0 || math.IsInf(l.Most, 0) {
			t.Errorf("%s has room for %v", l.What, l.Most)
		}
	}
	if _, err := Run(Config{}); err == nil {
		t.Error("an empty run is one")
	}
}

// TestFailure kills a tenth of the nodes. What ran there is lost and begun anew, nothing is placed on a
// node that is known to be dead, and the others take what was paused there.
func TestFailure(t *testing.T) {
	for _, p := range []Policy{Random, LeastLoaded, TwoChoices, Locality} { // packing leaves most nodes empty
		whole, broken := small(p), small(p)
		broken.Failure = Failure{At: 60, Part: 0.1, Silence: 4, Lease: 15, Dial: 2, Back: 1e9}
		a, b := run(t, whole), run(t, broken)
		if a.Lost != 0 || a.Misplaced != 0 {
			t.Errorf("%s: without a failure, %d are lost and %d misplaced", p, a.Lost, a.Misplaced)
		}
		if most := 2 * int(a.Running*5); b.Lost == 0 || b.Lost > most {
			t.Errorf("%s: %d sessions were lost with 5 nodes, which had some %.0f each", p, b.Lost, a.Running)
		}
		if b.Misplaced == 0 || b.Misplaced > 5 {
			t.Errorf("%s: %d placements on dead nodes, want one for each at most", p, b.Misplaced)
		}
		if b.Moves <= a.Moves && p == Locality {
			t.Errorf("%s: %d snapshots moved, without the failure %d", p, b.Moves, a.Moves)
		}
		if b.Started < a.Started*9/10 {
			t.Errorf("%s: %d sessions began, without the failure %d", p, b.Started, a.Started)
		}
	}
	back := small(Locality)
	back.Failure = Failure{At: 40, Part: 0.5, Silence: 4, Lease: 15, Dial: 2, Back: 20}
	if r := run(t, back); r.Empty > 0.4 {
		t.Errorf("half of the nodes were away for a quarter of the time, and %v of all were empty", r.Empty)
	}
}
