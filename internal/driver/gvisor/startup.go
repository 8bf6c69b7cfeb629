package gvisor

import (
	"os"
	"os/signal"
	"sync"
	_ "unsafe" // for go:linkname

	"golang.org/x/sys/unix"
)

// Work that a sentry does at its start, but could skip or do later.

// gVisor can report the actions of the programs inside to a receiver that is configured when the
// sandbox starts. We configure none. But before anything else the sentry describes each place where
// it could report, two or four for each system call, and checks each description. That takes 2 ms
// and 200 KB in each sandbox.

// pointsOnce makes gVisor describe those places only once. If gVisor renames it, gVisor describes
// them as before.
//
//go:linkname pointsOnce gvisor.dev/gvisor/pkg/sentry/seccheck.initOnce
var pointsOnce sync.Once

// skipPoints makes gVisor believe that it has described them. gVisor would then refuse a
// configuration that names one.
func skipPoints() { pointsOnce.Do(func() {}) }

// lastSignal is the last signal without a queue.
const lastSignal = 33

// catchSignals makes Go's runtime catch the signals that gVisor will forward to the first program.
// gVisor asks for them one by one just before that program starts. For each one the runtime
// switches threads twice, 4 ms in all. Done in parallel with the rest of the start, this costs no
// time. No signal comes before that: a sandbox is ended with SIGKILL.
func catchSignals() {
	for s := unix.Signal(1); s <= lastSignal; s++ {
		if s != unix.SIGURG && s != unix.SIGPIPE && s != unix.SIGCHLD { // as gVisor
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}
