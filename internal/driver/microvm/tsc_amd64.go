//go:build linux

package microvm

import "time"

// counter reads the processor's time stamp counter.
func counter() uint64

// Parameters of a measurement.
const (
	measureTime = 50 * time.Millisecond
	measureLook = 50 // readings, of which the quickest counts
)

// tscKHz measures the rate of this host's time stamp counter, which an emulated machine has, too.
func tscKHz() int {
	began, from := readClocks()
	time.Sleep(measureTime)
	ended, to := readClocks()
	return int(float64(to-from) / float64(ended.Sub(began).Nanoseconds()) * 1e6)
}

// readClocks reads the time and the counter at the same moment. The process may lose its processor in
// between, so it reads often and takes the pair that it read fastest.
func readClocks() (at time.Time, ticks uint64) {
	best := ^uint64(0)
	for range measureLook {
		before := counter()
		now := time.Now()
		if took := counter() - before; took < best {
			best, at, ticks = took, now, before+took/2
		}
	}
	return at, ticks
}
