package agent

import (
	"context"
	"sync"
	"time"
)

const (
	// uptimeTick is how often the running time is read while there are users of it.
	uptimeTick = time.Second
	// uptimeMost is the longest time between two readings on a busy machine. In any time above that
	// the guest did not run.
	uptimeMost = 3 * uptimeTick
)

// uptime is a clock of the time in which this guest ran. It limits how long a process may run and
// how long its end is kept. After a night in a pause, these limits must not all have passed.
//
// The kernel's clocks do not tell. Go's timers use CLOCK_MONOTONIC, which does not stop for a
// snapshot: at a restore gVisor moves it forward by the wall time that has passed
// (pkg/sentry/kernel/timekeeper.go, SetClocks). A frozen cgroup does not know that it was frozen.
// So this clock is read every uptimeTick, and a step larger than uptimeMost counts as uptimeMost.
// If it is wrong, it gives too much time.
type uptime struct {
	ctx   context.Context // ends the ticking
	spawn func(func())
	now   func() time.Time

	mu      sync.Mutex
	ran     time.Duration
	seen    time.Time // when ran was last updated
	users   int
	ticking bool
}

// countdown ends after a time in which the guest ran.
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
		u.seen = u.now() // time without users did not count
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

// read updates the clock and returns it. u.mu is held.
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

// fire calls fn, or waits longer if the timer's clock has jumped ahead of ours.
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
