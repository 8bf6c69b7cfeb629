//go:build linux

package proc

import "time"

// NextLook is how long processes without a memory control group may be left alone that may use left bytes more: until they
// could have filled them at speed, in bytes per second, within bounds. So between two looks they pass their limit by about as
// much as they had left, and no more, as long as whoever looks gets a processor.
func NextLook(left, speed int64, least, most time.Duration) time.Duration {
	d := time.Duration(float64(left) / float64(speed) * float64(time.Second))
	return max(least, min(d, most))
}
