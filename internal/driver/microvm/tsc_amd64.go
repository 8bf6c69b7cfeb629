//go:build linux

package microvm

import "time"

// counter reads the processor's time stamp counter.
func counter() uint64

// measureTime is the length of one measurement.
const measureTime = 20 * time.Millisecond

// tscKHz measures the rate of this host's time stamp counter, which an emulated machine has, too.
// The middle of three measurements counts, because the process may lose its processor during one.
func tscKHz() int {
	var rates [3]int
	for i := range rates {
		began, from := time.Now(), counter()
		time.Sleep(measureTime)
		to, took := counter(), time.Since(began)
		rates[i] = int(float64(to-from) / float64(took.Microseconds()) * 1000)
	}
	a, b, c := rates[0], rates[1], rates[2]
	return max(min(a, b), min(max(a, b), c))
}
