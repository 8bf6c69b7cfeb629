package assembly

import (
	"context"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/metrics"
	"github.com/carrel-dev/carrel/internal/quota"
	"github.com/carrel-dev/carrel/internal/service"
)

// Measure makes all parts tell their state at each scrape.
func (a *Assembly) Measure(m *metrics.Metrics) {
	m.Read(func(s *metrics.Scrape) { putSandboxes(s, a.Service.Stats()) })
	m.Read(a.putPool)
	m.Read(a.putGate)
	m.Read(a.putSnapshots)
	m.Read(a.putWire)
	m.Read(a.putPeople)
}

// putSandboxes tells how many sandboxes there are, of each state and of each project.
func putSandboxes(s *metrics.Scrape, f service.Stats) {
	weights := map[string]float64{}
	byState := metrics.NewSums[[2]string]()
	for kin, n := range f.Sandboxes {
		weights[kin.Project] += float64(n)
		byState.Add([2]string{string(kin.State), string(kin.Tier)}, float64(n))
	}
	byState.Each(func(k [2]string, n float64) { s.Put(metrics.Sandboxes, n, k[0], k[1]) })
	s.Put(metrics.MaxBoxes, float64(f.Max))
	s.Put(metrics.Projects, float64(len(weights)))
	name := metrics.Largest(weights)
	boxes := metrics.NewSums[[2]string]()
	for kin, n := range f.Sandboxes {
		boxes.Add([2]string{name(kin.Project), string(kin.State)}, float64(n))
	}
	boxes.Each(func(k [2]string, n float64) { s.Put(metrics.ProjectBoxes, n, k[0], k[1]) })
	cpus, memory := metrics.NewSums[string](), metrics.NewSums[string]()
	for project, l := range f.Held {
		cpus.Add(name(project), float64(l.VCPUs)/float64(quota.One))
		memory.Add(name(project), float64(l.Memory)/float64(quota.One)*(1<<20))
	}
	cpus.Each(func(p string, n float64) { s.Put(metrics.ProjectCPUs, n, p) })
	memory.Each(func(p string, n float64) { s.Put(metrics.ProjectMemory, n, p) })
}

// putPool tells what is kept ready. Kinds of a template that differ in size are one.
func (a *Assembly) putPool(s *metrics.Scrape) {
	st, err := a.Service.Pool(context.Background())
	if err != nil {
		return // no pool
	}
	s.Put(metrics.PoolCap, float64(st.Cap))
	s.Put(metrics.PoolHits, float64(st.Hits))
	s.Put(metrics.PoolMisses, float64(st.Misses))
	s.Put(metrics.PoolLost, float64(st.Lost))
	for _, state := range []string{"grow", "hold", "shrink"} {
		v := 0.0
		if st.Memory == state {
			v = 1
		}
		s.Put(metrics.PoolMemory, v, state)
	}
	if b := st.Blanks; b != nil {
		s.Put(metrics.BlanksReady, float64(b.Ready))
		s.Put(metrics.BlanksTaken, float64(b.Taken))
		s.Put(metrics.BlanksMissed, float64(b.Missed))
		s.Put(metrics.BlanksFailed, float64(b.Failed))
	}
	putKinds(s, st.Kinds)
}

// putKinds tells about the pool's kinds.
func putKinds(s *metrics.Scrape, kinds []carrel.PoolKind) {
	weights := map[string]float64{}
	for _, k := range kinds {
		weights[k.Template] += float64(k.Ready + k.Making + k.Target)
	}
	name := metrics.Largest(weights)
	for _, f := range []struct {
		family *metrics.Family
		of     func(carrel.PoolKind) int
	}{
		{metrics.PoolReady, func(k carrel.PoolKind) int { return k.Ready }},
		{metrics.PoolMaking, func(k carrel.PoolKind) int { return k.Making }},
		{metrics.PoolTarget, func(k carrel.PoolKind) int { return k.Target }},
	} {
		sums := metrics.NewSums[[2]string]()
		for _, k := range kinds {
			sums.Add([2]string{name(k.Template), string(k.Tier)}, float64(f.of(k)))
		}
		sums.Each(func(k [2]string, n float64) { s.Put(f.family, n, k[0], k[1]) })
	}
}

// putGate tells about the gate before each start.
func (a *Assembly) putGate(s *metrics.Scrape) {
	st := a.Service.Admission()
	s.Put(metrics.GateLimit, float64(st.Limit))
	s.Put(metrics.GateStarting, float64(st.Starting))
	s.Put(metrics.GateStuck, float64(st.Stuck))
	s.Put(metrics.GateWaiting, float64(st.Wakes), "wake")
	s.Put(metrics.GateWaiting, float64(st.Creates), "create")
	s.Put(metrics.GateTenants, float64(st.Tenants))
	s.Put(metrics.GateStart, st.MeanMS/1000)
	s.Put(metrics.GateWait, st.WaitMS/1000)
	s.Put(metrics.GateLeft, float64(st.Left))
	for why, n := range st.RefusedBy {
		s.Put(metrics.GateRefused, float64(n), why)
	}
	for lane, w := range st.Waited {
		s.PutHistogram(metrics.GateWaited, w.Buckets[:], w.Sum.Seconds(), lane)
	}
}

// putSnapshots tells what snapshots cost.
func (a *Assembly) putSnapshots(s *metrics.Scrape) {
	u, err := a.Snapshots.Usage(context.Background())
	if err != nil {
		return // it is closing
	}
	_, unused := a.Snapshots.Unused()
	c := a.Snapshots.Collections()
	s.Put(metrics.Snapshots, float64(u.Snapshots))
	s.Put(metrics.SnapshotBytes, float64(u.Size))
	s.Put(metrics.SnapshotHot, float64(u.Hot))
	s.Put(metrics.SnapshotPacked, float64(u.Packs))
	s.Put(metrics.SnapshotQuota, float64(u.Quota))
	s.Put(metrics.SnapshotUnused, float64(unused))
	s.Put(metrics.Collections, float64(c.Done), metrics.ClassOK)
	s.Put(metrics.Collections, float64(c.Failed), metrics.ClassFailed)
	s.Put(metrics.Collected, float64(c.Freed))
	s.Put(metrics.CollectTime, c.Took.Seconds())
}

// putWire tells about traffic out of sandboxes.
func (a *Assembly) putWire(s *metrics.Scrape) {
	if a.wire == nil {
		return
	}
	f := a.wire.Figures()
	s.Put(metrics.WireLinks, float64(f.Links))
	s.Put(metrics.WireConns, float64(f.Conns), "tcp")
	s.Put(metrics.WireConns, float64(f.Sessions), "udp")
	s.Put(metrics.WireBytes, float64(f.Sent), "out")
	s.Put(metrics.WireBytes, float64(f.Received), "in")
	for p, n := range f.Allowed {
		s.Put(metrics.WireDecisions, float64(n), p, "allowed")
	}
	for p, n := range f.Refused {
		s.Put(metrics.WireDecisions, float64(n), p, "refused")
	}
}

// putPeople tells about usage, webhooks and the audit trail.
func (a *Assembly) putPeople(s *metrics.Scrape) {
	if a.ledger != nil {
		f := a.ledger.Figures()
		seen := 0.0
		if !f.Seen.IsZero() {
			seen = float64(f.Seen.UnixMilli()) / 1000
		}
		s.Put(metrics.LedgerOpen, float64(f.Open))
		s.Put(metrics.LedgerBeats, float64(f.Beats), metrics.ClassOK)
		s.Put(metrics.LedgerBeats, float64(f.Failures), metrics.ClassFailed)
		s.Put(metrics.LedgerSeen, seen)
	}
	if hooks := a.hooks.Load(); hooks != nil {
		f := hooks.Figures()
		s.Put(metrics.Webhooks, float64(f.Enabled))
		s.Put(metrics.WebhookWaiting, float64(f.Waiting))
		s.Put(metrics.WebhookDead, float64(f.Dead))
		s.Put(metrics.WebhookAttempts, float64(f.Taken), metrics.ClassOK)
		s.Put(metrics.WebhookAttempts, float64(f.Failed), metrics.ClassFailed)
	}
	if a.trail == nil {
		return
	}
	f := a.trail.Figures()
	s.Put(metrics.TrailRecords, float64(f.Records))
	s.Put(metrics.TrailPending, float64(f.Pending))
	s.Put(metrics.TrailLost, float64(f.Lost))
	for name, on := range map[string]bool{"syslog": a.cfg.Trail.Syslog != "", "otlp": a.cfg.Trail.OTLP} {
		if on {
			s.Put(metrics.TrailUnsent, float64(max(0, f.Records-a.sent[name].Taken())), name)
		}
	}
}
