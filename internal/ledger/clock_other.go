//go:build !linux

package ledger

import (
	"crypto/rand"
	"time"
)

var processStart, processName = time.Now(), rand.Text()

// SystemClock reads the clocks of this machine. The monotonic one is this process's own, so each
// process counts as a boot.
func SystemClock() Moment {
	now := time.Now()
	return Moment{Wall: now.UTC().Round(0), Mono: now.Sub(processStart), Boot: processName}
}
