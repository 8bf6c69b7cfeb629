package admission

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestNoCollapse sends ten times what the machine sustains. It must go on doing nearly as much as
// it can, for clients of any patience.
func TestNoCollapse(t *testing.T) {
	const d = 20 * time.Second
	for _, c := range []struct {
		name     string
		patience time.Duration
	}{{"a minute", time.Minute}, {"five seconds", 5 * time.Second}, {"two seconds", 2 * time.Second}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &machine{}
				g := New(Options{Processors: processors})
				began := time.Now()
				got := flood(t, g, m, "", 10*capacity, d, c.patience)
				rate := float64(got.good) / time.Since(began).Seconds()
				t.Logf("%.1f a second of %.0f; %d refused, %d gave up, at most %d at once, limit %d", rate, capacity, got.refused, got.gaveUp, m.most, g.State().Limit)
				if rate < 0.8*capacity {
					t.Errorf("%.1f starts a second, of the %.0f that the machine sustains", rate, capacity)
				}
				if s := g.State(); s.Starting != 0 || s.Wakes+s.Creates != 0 || s.Stuck != 0 {
					t.Errorf("left at the gate: %+v", s)
				}
			})
		})
	}
	t.Run("without a gate", func(t *testing.T) { // shows that the test can fail
		synctest.Test(t, func(t *testing.T) {
			const d = 5 * time.Second
			got := flood(t, nil, &machine{}, "", 10*capacity, d, 5*time.Second)
			if rate := float64(got.good) / d.Seconds(); rate > 0.5*capacity {
				t.Errorf("%.1f starts a second without a gate: the simulated machine does not collapse", rate)
			}
		})
	})
}

// TestFair shows that a sharer that asks for little gets it, whatever another asks for.
func TestFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{}
		g := New(Options{Processors: processors, MaxQueued: 200})
		var greedy, modest *tally
		var wg sync.WaitGroup
		wg.Go(func() { greedy = flood(t, g, m, "greedy", 10*capacity, 20*time.Second, time.Minute) })
		wg.Go(func() {
			time.Sleep(2 * time.Second) // into a full queue
			modest = flood(t, g, m, "modest", capacity/10, 15*time.Second, time.Minute)
		})
		wg.Wait()
		if modest.refused+modest.gaveUp > 0 {
			t.Errorf("the modest one: %d refused, %d gave up, of %d", modest.refused, modest.gaveUp, modest.good)
		}
		if mean := modest.waits / time.Duration(max(1, modest.good)); mean > time.Second {
			t.Errorf("the modest one waited %v for each", mean)
		}
		if greedy.good < int(0.6*capacity*20) {
			t.Errorf("the greedy one got %d, of which the machine had room for %.0f", greedy.good, capacity*20)
		}
	})
}

// TestShares shows that two sharers that both ask for too much get the same.
func TestShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{}
		g := New(Options{Processors: processors})
		var a, b *tally
		var wg sync.WaitGroup
		wg.Go(func() { a = flood(t, g, m, "a", 8*capacity, 20*time.Second, 5*time.Second) })
		wg.Go(func() { b = flood(t, g, m, "b", 2*capacity, 20*time.Second, 5*time.Second) })
		wg.Wait()
		if a.good > 2*b.good || b.good > 2*a.good {
			t.Errorf("one got %d, the other %d", a.good, b.good)
		}
	})
}

// TestLimitFollows shows that the limit settles near the number that the machine sustains. It
// starts below that number, and at it.
func TestLimitFollows(t *testing.T) {
	for _, c := range []struct {
		name        string
		believed    int // the number of processors that the gate is told
		least, most int
	}{{"from below", 1, 2, 12}, {"from the right place", 2, 3, 16}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := New(Options{Processors: c.believed})
				flood(t, g, &machine{}, "", 3*capacity, 30*time.Second, time.Minute)
				if got := g.State().Limit; got < c.least || got > c.most {
					t.Errorf("the limit is %d, not between %d and %d", got, c.least, c.most)
				}
			})
		})
	}
}
