package service

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
)

// Sampling: how much is kept and how it is bounded.
const (
	samplesKept   = 720 // an hour at the usual 5 seconds
	sampleTime    = 2 * time.Second
	sampleWorkers = 4
)

// samples are the newest measurements of one sandbox, at most samplesKept. It is
// guarded by box.mu.
type samples struct {
	ring []carrel.Metric // grows, then wraps at oldest
	next int             // the oldest, once the ring is full
	cpu  time.Duration   // at the last sample
	at   time.Time       // of the last sample
}

func (r *samples) add(m carrel.Metric) {
	if len(r.ring) < samplesKept {
		r.ring = append(r.ring, m)
		return
	}
	r.ring[r.next] = m
	r.next = (r.next + 1) % samplesKept
}

// between returns the samples from one moment to another, oldest first.
func (r *samples) between(from, to time.Time) []carrel.Metric {
	out := make([]carrel.Metric, 0, len(r.ring))
	for i := range r.ring {
		m := r.ring[(r.next+i)%len(r.ring)]
		if (!from.IsZero() && m.Time.Before(from)) || (!to.IsZero() && m.Time.After(to)) {
			continue
		}
		out = append(out, m)
	}
	return out
}

// Metrics implements carrel.Sandboxes.
func (s *Service) Metrics(ctx context.Context, id carrel.ID, from, to time.Time) ([]carrel.Metric, error) {
	const op = "read metrics"
	if !from.IsZero() && !to.IsZero() && to.Before(from) {
		return nil, invalid(op, "end", "it is before start")
	}
	b, err := s.find(op, id)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	none := len(b.samples.ring) == 0 && b.rec.Sandbox.State == carrel.Running
	b.mu.Unlock()
	if none {
		if err := s.measure(ctx, b); err != nil {
			return nil, &carrel.Error{Op: op, Kind: carrel.KindOf(err), ID: id, Err: err}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.samples.between(from, to), nil
}

// measure takes one sample.
func (s *Service) measure(ctx context.Context, b *box) error {
	b.mu.Lock()
	inst := b.inst
	b.mu.Unlock()
	if inst == nil {
		return nil // paused meanwhile
	}
	ctx, cancel := context.WithTimeout(ctx, sampleTime)
	defer cancel()
	st, err := inst.Stats(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inst != inst {
		return nil // of what was before a pause
	}
	since, before := b.rec.Sandbox.Started, time.Duration(0)
	if !b.samples.at.IsZero() {
		since, before = b.samples.at, b.samples.cpu
	}
	if !now.After(since) && len(b.samples.ring) > 0 {
		return nil // another sample was faster
	}
	m := metric(st, b.rec.Sandbox.Limits)
	m.Time = now.UTC().Round(0)
	if d := now.Sub(since); d > 0 && st.CPU > before {
		m.CPUUsedPct = 100 * float64(st.CPU-before) / float64(d)
	}
	b.samples.at, b.samples.cpu = now, st.CPU
	b.samples.add(m)
	return nil
}

// metric is a driver's measurement in the public form. A limit that the driver
// does not enforce is shown as it was asked for.
func metric(st driver.Stats, l carrel.Limits) carrel.Metric {
	m := carrel.Metric{CPUCount: l.CPUs, MemUsed: st.Memory, MemTotal: st.MemoryLimit, MemCache: st.MemoryCache,
		DiskUsed: st.Disk, DiskTotal: st.DiskLimit}
	if m.MemTotal == 0 {
		m.MemTotal = int64(l.MemoryMB) << 20
	}
	if m.DiskTotal == 0 {
		m.DiskTotal = int64(l.DiskMB) << 20
	}
	return m
}

// sample measures every running sandbox once per interval, spread over it, until
// the service closes.
func (s *Service) sample() {
	tick := time.NewTicker(s.opts.SampleEvery)
	defer tick.Stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, sampleWorkers)
	for {
		all := slices.DeleteFunc(s.snapshot(), func(b *box) bool { return b.running("") != nil })
		gap := s.opts.SampleEvery / time.Duration(len(all)+1)
		for _, b := range all {
			select {
			case slots <- struct{}{}:
			case <-s.ctx.Done():
				return
			}
			wg.Go(func() {
				defer func() { <-slots }()
				if err := s.measure(s.ctx, b); err != nil && s.ctx.Err() == nil {
					s.log.Debug("measure sandbox", "sandbox", b.id, "err", err)
				}
			})
			if !sleep(s.ctx, gap) {
				return
			}
		}
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}
	}
}
