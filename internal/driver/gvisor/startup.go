package gvisor

import (
	"os"
	"os/signal"
	"sync"
	_ "unsafe" // for go:linkname

	"golang.org/x/sys/unix"
)

// What a sentry does at its start that it need not do, or not then.

// gVisor can report what the programs inside do, to who configured it when the sandbox started. Nobody here does; but the sentry
// describes each place where it could, two or four for each system call, and checks each description, before it does anything else: 2 ms and 200 KB of each sandbox.

// pointsOnce is what makes gVisor describe them once. Under another name it would describe them as before.
//
//go:linkname pointsOnce gvisor.dev/gvisor/pkg/sentry/seccheck.initOnce
var pointsOnce sync.Once

// skipPoints has gVisor believe that it has described them. A configuration that named one would be refused.
func skipPoints() { pointsOnce.Do(func() {}) }

// lastSignal is the last of those without a queue.
const lastSignal = 33

// catchSignals has Go's runtime catch the signals that gVisor will forward to the first program. It asks for them one by one just before
// that program starts, and for each the runtime changes between threads twice, 4 ms in all; beside the rest of the start they
// cost no time. None comes before: whoever ends a sandbox kills it.
func catchSignals() {
	for s := unix.Signal(1); s <= lastSignal; s++ {
		if s != unix.SIGURG && s != unix.SIGPIPE && s != unix.SIGCHLD { // as gVisor
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}
