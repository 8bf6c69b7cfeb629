package service

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/carrel-dev/carrel"
)

// How idleness is looked for.
const (
	idleTick     = time.Second
	idlePauses   = 4               // at once; each writes a sandbox's memory to disk
	idleCPU      = 5               // percent of one core, where Idle.CPUPct is 0
	activityTime = 2 * time.Second // for the guest's answer
	tidyEvery    = 60              // ticks
)

// idle pauses sandboxes that do nothing, until the service closes. Each tick looks only at numbers
// that the service already has. If these show a quiet sandbox, the service measures it once more
// and asks its guest.
func (au *autopilot) idle() {
	tries := newAttempts(idlePauses)
	defer tries.wg.Wait()
	tick := time.NewTicker(idleTick)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-tick.C:
		case <-au.table.ctx.Done():
			return
		}
		now := time.Now()
		for _, b := range au.table.awake() {
			b.mu.Lock()
			quiet := b.quietLocked(now)
			b.mu.Unlock()
			if quiet {
				tries.try(b, now, func() time.Time { return au.pauseIdle(tries, b) })
			}
		}
		if n%tidyEvery == 0 {
			tries.tidy()
		}
	}
}

// quietLocked reports whether a running sandbox has done nothing for long enough, as far as the
// service can tell from outside. The caller holds mu.
func (b *box) quietLocked(now time.Time) bool {
	l := b.rec.Sandbox.Lifecycle.Idle
	if b.rec.Sandbox.State != carrel.Running || l.After <= 0 {
		return false
	}
	since := now.Add(-l.After)
	return b.use.open == 0 && b.use.last.Before(since) && b.samples.peak(since) < threshold(l)
}

// threshold is the processor use below which a sandbox counts as idle.
func threshold(l carrel.Idle) float64 {
	if l.CPUPct == 0 {
		return idleCPU
	}
	return l.CPUPct
}

// peak is the highest processor use of the samples since a given time; −1 without samples.
func (r *samples) peak(since time.Time) float64 {
	most := -1.0
	for i := range r.ring {
		p := r.newest(i)
		if p.time <= since.UnixNano() {
			break
		}
		most = math.Max(most, float64(p.cpu))
	}
	return most
}

// pauseIdle looks again at a sandbox that seems quiet, and pauses it if it still is. It returns the
// time of the next look.
func (au *autopilot) pauseIdle(tries *attempts, b *box) time.Time {
	l := b.public().Lifecycle
	again := time.Now().Add(min(max(l.Idle.After/10, idleTick), time.Minute))
	busy, err := au.busyInside(b, l.Idle)
	if err == nil && busy {
		return again
	}
	if err == nil {
		var sb carrel.Sandbox
		sb, err = au.moments.pauseIf(au.table.ctx, b, carrel.PauseOptions{FilesOnly: l.FilesOnly, Cause: carrel.CauseIdle},
			func() bool { return b.quietLocked(time.Now()) && b.rec.Sandbox.Lifecycle.FilesOnly == l.FilesOnly })
		if err == nil && sb.State == carrel.Running { // somebody came
			return again
		}
	}
	switch {
	case err == nil:
		tries.worked(b)
		return time.Time{}
	case au.table.ctx.Err() != nil, b.running("") != nil: // it has ended or is paused
		return again
	}
	wait := tries.failed(b)
	au.journal.tell(carrel.Event{Type: eventPauseFailed, ID: b.id,
		Message: fmt.Sprintf("it is idle, but could not be paused and runs on: %v; tried again in %v", err, wait)})
	return time.Now().Add(wait)
}

// busyInside measures a sandbox once more, since the newest sample may be older than the start of
// some work. Then it asks the guest about its activity.
func (au *autopilot) busyInside(b *box, l carrel.Idle) (bool, error) {
	if err := au.meter.measure(au.table.ctx, b); err != nil {
		return false, fmt.Errorf("measure it: %w", err)
	}
	b.mu.Lock()
	peak, conn := b.samples.peak(time.Now().Add(-l.After)), b.conn
	b.mu.Unlock()
	if peak < 0 || peak >= threshold(l) || conn == nil {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(au.table.ctx, activityTime)
	defer cancel()
	a, err := conn.Activity(ctx)
	if err != nil {
		return false, fmt.Errorf("ask the guest what goes on: %w", err)
	}
	return a.Streams > 0 || a.Processes > 0 && !l.IgnoreCommands, nil
}
