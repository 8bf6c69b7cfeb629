package service

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
)

// Bounds on sampling. An idle sandbox is measured less and less often, so thousands of idle ones
// cost as much as a few busy ones.
const (
	samplesKept   = 720       // an hour at the usual 5 seconds
	samplesFor    = time.Hour // with longer intervals, this much time is kept
	sampleTime    = 2 * time.Second
	sampleWorkers = 4
	restingCPU    = 1  // percent of a core; below it, a sandbox is idle
	restingFactor = 12 // the longest interval, in usual intervals
)

// samples are the newest measurements of one sandbox, at most samplesKept. It is
// guarded by box.mu.
type samples struct {
	ring []point // grows, then wraps at oldest
	next int     // the oldest sample, once the ring has wrapped
	// total is the newest sample with all its fields, in the public form.
	total carrel.Metric
	cpu   time.Duration // at the last sample
	at    time.Time     // of the last sample

	every time.Duration // the present interval; 0 is the usual one
	due   time.Time     // the next
}

// point is a carrel.Metric without the fields that hardly change. It is small because there are
// many.
type point struct {
	time            int64 // Unix nanoseconds
	mem, cache, dsk int64
	sent, received  int64
	cpu             float32
}

func (r *samples) add(m carrel.Metric) {
	r.total = m
	p := point{time: m.Time.UnixNano(), mem: m.MemUsed, cache: m.MemCache, dsk: m.DiskUsed,
		sent: m.NetSent, received: m.NetReceived, cpu: float32(m.CPUUsedPct)}
	if n := len(r.ring); n > 0 && (n == samplesKept || p.time-r.ring[r.next].time > int64(samplesFor)) {
		r.ring[r.next] = p // the oldest
		r.next = (r.next + 1) % n
		return
	}
	if r.next > 0 { // it wrapped and must grow: put the oldest first again
		r.ring = slices.Concat(r.ring[r.next:], r.ring[:r.next])
		r.next = 0
	}
	r.ring = append(r.ring, p)
}

// newest returns the sample that comes i samples before the newest.
func (r *samples) newest(i int) point {
	n := len(r.ring)
	return r.ring[((r.next-1-i)%n+n)%n]
}

// between returns the samples between two times, oldest first.
func (r *samples) between(from, to time.Time) []carrel.Metric {
	out := make([]carrel.Metric, 0, len(r.ring))
	for i := len(r.ring) - 1; i >= 0; i-- {
		p := r.newest(i)
		m := r.total
		m.Time = time.Unix(0, p.time).UTC()
		m.MemUsed, m.MemCache, m.DiskUsed, m.CPUUsedPct = p.mem, p.cache, p.dsk, float64(p.cpu)
		m.NetSent, m.NetReceived = p.sent, p.received
		if (!from.IsZero() && m.Time.Before(from)) || (!to.IsZero() && m.Time.After(to)) {
			continue
		}
		out = append(out, m)
	}
	return out
}

// stir notes activity, present or soon to come. The usual interval is back at once.
func (r *samples) stir() { r.every, r.due = 0, time.Time{} }

// rest chooses the next interval after a sample. It grows while the sandbox is idle, up to most; 0
// is no bound.
func (r *samples) rest(m carrel.Metric, usual, most time.Duration) {
	every := usual
	if m.CPUUsedPct < restingCPU {
		every = min(2*max(r.every, usual), restingFactor*usual)
		if most > 0 {
			every = min(every, max(most, usual))
		}
	}
	r.every, r.due = every, m.Time.Add(every)
}

// meter measures sandboxes.
type meter struct {
	opts  *Options
	log   *slog.Logger
	table *table

	census *census
}

// Metrics implements carrel.Sandboxes.
func (me *meter) Metrics(ctx context.Context, id carrel.ID, from, to time.Time) ([]carrel.Metric, error) {
	const op = "read metrics"
	if !from.IsZero() && !to.IsZero() && to.Before(from) {
		return nil, invalid(op, "end", "it is before start")
	}
	b, err := me.table.find(op, id)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	none := len(b.samples.ring) == 0
	old := b.rec.Sandbox.State == carrel.Running && time.Since(b.samples.at) > me.opts.SampleEvery
	if old {
		b.samples.stir() // whoever asks will ask again
	}
	b.mu.Unlock()
	if old && (to.IsZero() || to.After(time.Now())) || none && old {
		if err := me.measure(ctx, b); err != nil && none {
			return nil, &carrel.Error{Op: op, Kind: carrel.KindOf(err), ID: id, Err: err}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.samples.between(from, to), nil
}

// measure takes one sample.
func (me *meter) measure(ctx context.Context, b *box) error {
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
	me.opts.sampled(b.id, st)
	since, before := b.rec.Sandbox.Started, time.Duration(0)
	if !b.samples.at.IsZero() {
		since, before = b.samples.at, b.samples.cpu
	}
	if !now.After(since) && len(b.samples.ring) > 0 {
		return nil // another sample was faster
	}
	m := metric(st, b.rec.Sandbox.Limits)
	if me.opts.Networks != nil {
		m.NetSent, m.NetReceived = me.opts.Networks.Traffic(b.id)
	}
	idle := b.rec.Sandbox.Lifecycle.Idle.After
	m.Time = now.UTC().Round(0)
	if d := now.Sub(since); d > 0 && st.CPU > before {
		m.CPUUsedPct = 100 * float64(st.CPU-before) / float64(d)
	}
	b.samples.at, b.samples.cpu = now, st.CPU
	b.samples.add(m)
	b.samples.rest(m, me.opts.SampleEvery, idle/4)
	return nil
}

// metric is a driver's measurement in the public form. A limit that the driver does not enforce is
// shown as the request set it.
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

// sample measures each running sandbox when it is due, until the service closes. It spreads the
// work over the interval.
func (me *meter) sample() {
	tick := time.NewTicker(me.opts.SampleEvery)
	defer tick.Stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, sampleWorkers)
	for {
		soon := time.Now().Add(me.opts.SampleEvery / 2)
		all := slices.DeleteFunc(me.table.awake(), func(b *box) bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.rec.Sandbox.State != carrel.Running || b.samples.due.After(soon)
		})
		gap := me.opts.SampleEvery / time.Duration(len(all)+1)
		for _, b := range all {
			select {
			case slots <- struct{}{}:
			case <-me.table.ctx.Done():
				return
			}
			wg.Go(func() {
				defer func() { <-slots }()
				if err := me.measure(me.table.ctx, b); err != nil && me.table.ctx.Err() == nil {
					me.log.Debug("measure sandbox", "sandbox", b.id, "err", err)
				}
			})
			if !sleep(me.table.ctx, gap) {
				return
			}
		}
		select {
		case <-tick.C:
		case <-me.table.ctx.Done():
			return
		}
	}
}
