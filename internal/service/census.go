package service

import (
	"slices"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
)

// census counts the sandboxes of each project, at the same interval as sandboxes are measured. It
// keeps the last hour in memory, and nothing of a project that had no sandbox in that time.
type census struct {
	mu     sync.Mutex
	starts map[string]int // since the last count, by project
	at     time.Time      // of the last count
	counts map[string][]carrel.ProjectMetric
}

// started notes that a sandbox was created or resumed.
func (c *census) started(project string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.starts == nil {
		c.starts = map[string]int{}
	}
	c.starts[project]++
}

// add notes how many sandboxes of each project run now.
func (c *census) add(now time.Time, running map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string][]carrel.ProjectMetric{}
	}
	for p := range c.starts {
		if _, ok := running[p]; !ok {
			running[p] = 0
		}
	}
	for p := range c.counts {
		if _, ok := running[p]; !ok {
			running[p] = 0
		}
	}
	since := now.Sub(c.at).Seconds()
	for p, n := range running {
		m := carrel.ProjectMetric{Time: now.UTC(), Running: n}
		if !c.at.IsZero() && since > 0 {
			m.StartRate = float64(c.starts[p]) / since
		}
		all := append(c.counts[p], m)
		if len(all) > samplesKept {
			all = slices.Delete(all, 0, len(all)-samplesKept)
		}
		if c.counts[p] = all; !slices.ContainsFunc(all, carrel.ProjectMetric.Busy) {
			delete(c.counts, p)
		}
	}
	c.at, c.starts = now, nil
}

// between returns a project's counts between two times, oldest first.
func (c *census) between(project string, from, to time.Time) []carrel.ProjectMetric {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := []carrel.ProjectMetric{}
	for _, m := range c.counts[project] {
		if (from.IsZero() || !m.Time.Before(from)) && (to.IsZero() || !m.Time.After(to)) {
			out = append(out, m)
		}
	}
	return out
}

// count takes the census, until the service closes.
func (me *meter) count() {
	tick := time.NewTicker(me.opts.SampleEvery)
	defer tick.Stop()
	for {
		running := map[string]int{}
		for _, b := range me.table.awake() {
			if sb := b.public(); sb.State == carrel.Running {
				running[sb.Project]++
			}
		}
		me.census.add(time.Now(), running)
		select {
		case <-tick.C:
		case <-me.table.ctx.Done():
			return
		}
	}
}

// ProjectMetrics returns how many sandboxes of a project ran in the last hour, oldest first. The
// zero times are no bound.
func (s *Service) ProjectMetrics(project string, from, to time.Time) []carrel.ProjectMetric {
	return s.meter.census.between(project, from, to)
}
