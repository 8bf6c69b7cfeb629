//go:build linux

package proc

import (
	"math"
	"testing"
	"time"
)

// TestNextLook checks that a process near its limit is checked again soon, and one far from it
// seldom.
func TestNextLook(t *testing.T) {
	const mb, speed, least, most = 1 << 20, 4 << 30, 2 * time.Millisecond, 100 * time.Millisecond
	for _, c := range []struct {
		left     int64
		from, to time.Duration
	}{
		{100 * mb, least, 40 * time.Millisecond},
		{10 * mb, least, 4 * time.Millisecond},
		{0, least, least},
		{-mb, least, least},
		{64 << 30, most, most},
		{math.MaxInt64, most, most},
	} {
		if got := NextLook(c.left, speed, least, most); got < c.from || got > c.to {
			t.Errorf("with %d MB left: %v, want %v to %v", c.left/mb, got, c.from, c.to)
		}
	}
}
