//go:build linux

package proc

import "time"

// NextLook returns the time until the next check of processes without a memory control group. left
// is the number of bytes until their limit. The time is how long they need to fill left at speed,
// in bytes per second, within least and most. So between two checks they exceed their limit by at
// most about left, as long as the checking process gets a processor.
func NextLook(left, speed int64, least, most time.Duration) time.Duration {
	d := time.Duration(float64(left) / float64(speed) * float64(time.Second))
	return max(least, min(d, most))
}
