package agent

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// jumping is the real clock with jumps forward, as in a restored sandbox.
type jumping struct{ ahead atomic.Int64 }

func (j *jumping) now() time.Time       { return time.Now().Add(time.Duration(j.ahead.Load())) }
func (j *jumping) jump(d time.Duration) { j.ahead.Add(int64(d)) }

func newUptime(t *testing.T) (*uptime, *jumping) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	clock := &jumping{}
	t.Cleanup(func() { cancel(); wg.Wait() })
	return &uptime{ctx: ctx, spawn: func(fn func()) { wg.Go(fn) }, now: clock.now}, clock
}

// TestUptimeJump shows that a week between two readings does not count as running time.
func TestUptimeJump(t *testing.T) {
	u, clock := newUptime(t)
	fired := make(chan struct{})
	c := u.afterFunc(time.Hour, func() { close(fired) })
	defer c.stop()
	for range 20 {
		clock.jump(7 * 24 * time.Hour)
		c.fire() // like the runtime's timer after its clock jumped
		select {
		case <-fired:
			t.Fatal("a limit passed while nobody ran")
		default:
		}
	}
	u.mu.Lock()
	ran := u.ran
	u.mu.Unlock()
	if ran > time.Hour || ran < 0 {
		t.Errorf("ran for %v", ran)
	}
}

// TestUptimeRuns shows that time in small steps counts, and that a delayed timer fires in the end.
func TestUptimeRuns(t *testing.T) {
	u, clock := newUptime(t)
	fired := make(chan struct{})
	c := u.afterFunc(time.Minute, func() { close(fired) })
	clock.jump(24 * time.Hour)
	c.fire()
	for range 60 {
		clock.jump(time.Second)
		u.mu.Lock()
		u.read()
		u.mu.Unlock()
	}
	c.fire()
	select {
	case <-fired:
	default:
		t.Error("it did not fire")
	}
	c.stop()
	u.afterFunc(time.Millisecond, func() {}).stop()
	late := make(chan struct{})
	u.afterFunc(time.Millisecond, func() { close(late) })
	<-late
}

// TestUptimeHammer starts and stops countdowns from many goroutines.
func TestUptimeHammer(t *testing.T) {
	u, clock := newUptime(t)
	var wg sync.WaitGroup
	var fired atomic.Int64
	for range 8 {
		wg.Go(func() {
			for i := range 200 {
				c := u.afterFunc(time.Duration(i%3)*time.Microsecond, func() { fired.Add(1) })
				clock.jump(time.Duration(i%2) * time.Hour)
				c.stop()
				c.stop()
			}
		})
	}
	wg.Wait()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.users != 0 {
		t.Errorf("%d users are left", u.users)
	}
}
