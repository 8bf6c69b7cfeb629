package agent

import (
	"context"
	"sync"
	"time"
)

const (
	// uptimeTick is how often the running time is read while somebody counts on it.
	uptimeTick = time.Second
	// uptimeMost is what may pass between two readings on a machine that is merely
	// busy. What is above it, nobody ran.
	uptimeMost = 3 * uptimeTick
)

// uptime is a clock of the time in which this guest ran, for limits on how long a
// process may run and how long its end is kept. A sandbox that was paused over
// night and restored must not find them all passed.
//
// The kernel's clocks don't tell. CLOCK_MONOTONIC, which Go's timers go by, stands
// still in no snapshot: gVisor moves it forward at a restore by the wall time that
// has passed (pkg/sentry/kernel/timekeeper.go, SetClocks), and a frozen cgroup knows
// nothing of being frozen. So this clock is read every uptimeTick, and a step larger
// than uptimeMost counts as that much. Its error is on the side of too much time.
type uptime struct {
	ctx   context.Context // ends the ticking
	spawn func(func())
	now   func() time.Time

	mu      sync.Mutex
	ran     time.Duration
	seen    time.Time // when ran was brought up to date
	users   int
	ticking bool
}

// countdown ends after a time of running.
type countdown struct {
	up    *uptime
	until time.Duration // of up.ran
	fn    func()
	timer *time.Timer
	over  bool // fired or stopped
}

// afterFunc calls fn, in a goroutine of its own, when the guest has run for d.
func (u *uptime) afterFunc(d time.Duration, fn func()) *countdown {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.users == 0 {
		u.seen = u.now() // nobody counted what was before
	}
	u.users++
	c := &countdown{up: u, until: u.read() + d, fn: fn}
	c.timer = time.AfterFunc(d, c.fire)
	if !u.ticking {
		u.ticking = true
		u.spawn(u.tick)
	}
	return c
}

// read brings the clock up to date and returns it. u.mu is held.
func (u *uptime) read() time.Duration {
	now := u.now()
	u.ran += min(max(now.Sub(u.seen), 0), uptimeMost)
	u.seen = now
	return u.ran
}

// tick reads the clock while it has users.
func (u *uptime) tick() {
	t := time.NewTicker(uptimeTick)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-u.ctx.Done():
			return
		}
		u.mu.Lock()
		u.read()
		if u.users == 0 {
			u.ticking = false
			u.mu.Unlock()
			return
		}
		u.mu.Unlock()
	}
}

// fire calls fn, or waits on when the timer's clock has jumped ahead of ours.
func (c *countdown) fire() {
	c.up.mu.Lock()
	if c.over {
		c.up.mu.Unlock()
		return
	}
	if left := c.until - c.up.read(); left > 0 {
		c.timer.Reset(left)
		c.up.mu.Unlock()
		return
	}
	c.over = true
	c.up.users--
	c.up.mu.Unlock()
	c.fn()
}

// stop ends the countdown; fn is not called later, but may be running.
func (c *countdown) stop() {
	c.up.mu.Lock()
	defer c.up.mu.Unlock()
	if !c.over {
		c.over = true
		c.up.users--
		c.timer.Stop()
	}
}
