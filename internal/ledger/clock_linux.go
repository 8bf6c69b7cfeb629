package ledger

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// bootID names this boot.
var bootID = sync.OnceValue(proc.BootID)

// SystemClock reads the clocks of this machine. The monotonic one is the kernel's own, so it goes on
// from one process to the next.
func SystemClock() Moment {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // fails only for unknown clocks
	return Moment{Wall: time.Now().UTC().Round(0), Mono: time.Duration(ts.Nano()), Boot: bootID()}
}
