package service

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
)

// Limits and timing of automatic snapshots.
const (
	checkpointTick  = time.Second
	checkpointTakes = 2                     // at once
	restCPU         = 10 * time.Millisecond // processor time that an idle sandbox may use,
	restShare       = 1000                  // plus this fraction (1/n) of the elapsed time
)

const eventCheckpointFailed = "sandbox.checkpoint_failed"

// autopilot does the service's own work on sandboxes: periodic snapshots, and pauses of idle
// sandboxes.
type autopilot struct {
	table   *table
	journal *journal
	archive *archive
	moments *moments
	meter   *meter
}

// rest is the measurement of a sandbox when its last checkpoint was taken.
type rest struct {
	inst  driver.Instance
	at    time.Time
	stats driver.Stats
}

// checkpoints takes the snapshots that Checkpoints.Every asks for, until the service closes. Now
// and then it also applies the retention rules.
func (au *autopilot) checkpoints() {
	tries := newAttempts(checkpointTakes)
	defer tries.wg.Wait()
	tick := time.NewTicker(checkpointTick)
	defer tick.Stop()
	plans := map[*box]*checkpointPlan{}
	var retained time.Time // zero: a dead service may have left snapshots behind
	for n := 1; ; n++ {
		select {
		case <-tick.C:
		case <-au.table.ctx.Done():
			return
		}
		now := time.Now()
		for _, b := range au.table.awake() {
			b.mu.Lock()
			every, runs := b.rec.Sandbox.Lifecycle.Checkpoints.Every, b.rec.Sandbox.State == carrel.Running
			b.mu.Unlock()
			if every <= 0 {
				delete(plans, b)
				continue
			}
			p := plans[b]
			if p == nil || p.every != every {
				p = &checkpointPlan{every: every, first: now.Add(early(every, 0.5))}
				plans[b] = p
			}
			if runs && !now.Before(p.first) {
				tries.try(b, now, func() time.Time { return au.checkpoint(tries, b, p) })
			}
		}
		if now.Sub(retained) >= retainEvery {
			retained = now
			tries.wg.Go(au.archive.retain)
		}
		if n%tidyEvery == 0 {
			tries.tidy()
			for b := range plans {
				if isClosed(b.gone) {
					delete(plans, b)
				}
			}
		}
	}
}

// checkpointPlan is the loop's state for one sandbox.
type checkpointPlan struct {
	every time.Duration
	first time.Time
	last  rest
}

// early returns a random span between d and the given share less than d. Many sandboxes may be
// made, or found by a new service, at the same time. The random span keeps them from taking their
// snapshots all at once.
func early(d time.Duration, share float64) time.Duration {
	return d - time.Duration(share*rand.Float64()*float64(d))
}

// checkpoint takes one snapshot, unless the sandbox has not changed since the last one. It returns
// the time of the next checkpoint.
func (au *autopilot) checkpoint(tries *attempts, b *box, p *checkpointPlan) time.Time {
	next := func() time.Time { return time.Now().Add(early(p.every, 0.1)) }
	err := au.takeCheckpoint(au.table.ctx, b, p)
	switch {
	case err == nil:
		tries.worked(b)
		return next()
	case au.table.ctx.Err() != nil, b.running("") != nil: // ended, or paused: no failure
		return next()
	}
	wait := max(tries.failed(b), p.every)
	au.journal.tell(carrel.Event{Type: eventCheckpointFailed, ID: b.id,
		Message: fmt.Sprintf("its snapshot (every %v) could not be taken: %v; tried again in %v", p.every, err, wait)})
	return time.Now().Add(wait)
}

// takeCheckpoint holds box.turn while it decides. A sandbox that is paused by then keeps its
// snapshot unchanged.
func (au *autopilot) takeCheckpoint(ctx context.Context, b *box, p *checkpointPlan) error {
	ctx, release, err := au.table.take(ctx, "take snapshot", b)
	if err != nil {
		return err
	}
	defer release()
	if b.running("") != nil {
		return nil
	}
	now, changed, err := au.changed(ctx, b, p.last)
	if err != nil || !changed {
		return err
	}
	l := b.public().Lifecycle.Checkpoints
	if l.Every <= 0 {
		return nil // switched off meanwhile
	}
	if _, err := au.moments.snap(ctx, b, wish{cause: carrel.CauseInterval, filesOnly: l.FilesOnly, detail: "every " + l.Every.String()}); err != nil {
		return err
	}
	if after, _, err := au.changed(ctx, b, rest{}); err == nil {
		now.stats.CPU = after.stats.CPU // the processor time of the snapshot itself is no change
	}
	p.last = now
	return nil
}

// changed measures a sandbox and compares it with an earlier measurement. A sandbox has changed
// when it had a visitor, when it used more processor time than an idle guest, or when it wrote to
// its disk.
func (au *autopilot) changed(ctx context.Context, b *box, last rest) (now rest, changed bool, err error) {
	b.mu.Lock()
	inst, used := b.inst, b.use
	b.mu.Unlock()
	if inst == nil {
		return rest{}, false, nil // paused meanwhile
	}
	ctx, cancel := context.WithTimeout(ctx, sampleTime)
	defer cancel()
	st, err := inst.Stats(ctx)
	if err != nil {
		return rest{}, false, fmt.Errorf("measure it: %w", err)
	}
	now = rest{inst: inst, at: time.Now(), stats: st}
	if last.inst != inst {
		return now, true, nil
	}
	cpu := st.CPU - last.stats.CPU
	return now, used.open > 0 || used.last.After(last.at) || st.Disk != last.stats.Disk ||
		cpu > restCPU+now.at.Sub(last.at)/restShare, nil
}
