package gvisor

import (
	"sync"
	"time"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/atomicbitops"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/platform"
)

// A program that makes a system call hands over to the sentry and waits; the sentry answers and
// waits for the next call. Each of the two can wait in two ways. It can sleep, and waking it takes
// 25 to 100 µs. Or it can poll, and notices after 3 µs: gVisor calls that its fast path, and turns
// it on after a millisecond with work in it.
//
// That is right for a program that makes thousands of calls, and wrong for short work. A poller
// needs a processor, and the start of a sandbox or of a command has better use for it: it has many
// threads that all have a little to do. So here a burst of work gets the fast path only after
// patience periods, some 20 ms. A sandbox's start then uses an eighth less processor time, and the
// first command after a pause a sixth less processor time in total. A program of many calls loses
// some milliseconds once.

const (
	// patience is the number of periods with work in a burst before the fast path is tried.
	patience = 50
	// period is how often gVisor decides about the fast path.
	period = 400 * time.Microsecond
	// firstWait is the value that gVisor itself uses for patience.
	firstWait = 2
)

// patientPlatform makes systrap with our monitor in place of its own. If gVisor's state is not the
// one we know, systrap stays as it is.
func patientPlatform(c platform.Constructor, opts platform.Options) (platform.Platform, error) {
	ours := takeFastPath()
	p, err := c.New(opts)
	if err == nil && ours && !neverEnableFastPath {
		monitorFastPath()
	}
	return p, err
}

// takeFastPath makes gVisor believe that its monitor was started already. It reports whether our
// monitor can run instead.
var takeFastPath = sync.OnceValue(func() bool {
	if !fastPath.known() {
		return false
	}
	latencyMonitoring.Do(func() {})
	return true
})

// monitorFastPath starts the monitor. One monitor serves all platforms of a process.
var monitorFastPath = sync.OnceFunc(func() {
	fastPathContextLimit = uint32(maxSysmsgThreads * 2)
	go fastPath.monitor()
})

// fastPathState is the layout of gVisor's state of the fast path. It names only the fields that our
// monitor needs. Most fields exist twice, for the two sides that may poll: the program's and the
// sentry's. The offsets come from a program's debug information; a test compares them.
type fastPathState struct {
	_      [1280]byte             // measurements
	waits  [2]int                 // periods for which the fast path stays off
	_      [96]byte               // counts of failed attempts
	on     [2]flagOnItsOwn        // whether it is used now
	_      [68]byte               // bounds of concurrent pollers
	used   [2]flagOnItsOwn        // whether it was used in this period
	decide func(s *fastPathState) // runs at a period's end; sets the next decide
	_      [hostarch.CacheLineSize]byte
	worked flagOnItsOwn      // whether a period had work
	parked atomicbitops.Bool // whether the monitor waits for work
	wake   chan struct{}     // for a monitor that is parked
	_      [hostarch.CacheLineSize]byte
}

// flagOnItsOwn is a flag that fills the rest of its cache line, so that no field after it shares
// the line.
type flagOnItsOwn struct {
	atomicbitops.Bool
	_ [hostarch.CacheLineSize]byte
}

// known reports whether the state looks as in the gVisor version that we know. No monitor may have
// touched it yet.
func (s *fastPathState) known() bool {
	return s.waits == [2]int{firstWait, firstWait} && s.decide != nil && cap(s.wake) == 1 && !s.parked.Load()
}

// monitor serves one burst of work after the other. Between bursts it sleeps in gVisor's code.
func (s *fastPathState) monitor() {
	for {
		s.burst()
		parkFastPath(s)
	}
}

// burst first keeps the fast path off. It then lets gVisor decide about it after each period, until
// the first period without work.
func (s *fastPathState) burst() {
	for side, wait := range s.waits {
		s.waits[side] = max(wait, patience)
	}
	for more := true; more; more = s.worked.Swap(false) {
		time.Sleep(period)
		s.decide(s)
		for side := range s.used {
			s.used[side].Store(false)
		}
	}
}

// Variables of gVisor, under gVisor's names.
var (
	//go:linkname fastPath gvisor.dev/gvisor/pkg/sentry/platform/systrap.fastpath
	fastPath fastPathState

	//go:linkname latencyMonitoring gvisor.dev/gvisor/pkg/sentry/platform/systrap.latencyMonitoring
	latencyMonitoring sync.Once

	//go:linkname neverEnableFastPath gvisor.dev/gvisor/pkg/sentry/platform/systrap.neverEnableFastPath
	neverEnableFastPath bool

	//go:linkname fastPathContextLimit gvisor.dev/gvisor/pkg/sentry/platform/systrap.fastPathContextLimit
	fastPathContextLimit uint32

	//go:linkname maxSysmsgThreads gvisor.dev/gvisor/pkg/sentry/platform/systrap.maxSysmsgThreads
	maxSysmsgThreads int
)

// parkFastPath turns the fast path off and waits until there is work.
//
//go:linkname parkFastPath gvisor.dev/gvisor/pkg/sentry/platform/systrap.(*fastPathState).park
func parkFastPath(*fastPathState)
