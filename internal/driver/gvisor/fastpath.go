package gvisor

import (
	"sync"
	"time"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/atomicbitops"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/platform"
)

// A program that makes a system call hands over to the sentry and waits; the sentry answers and waits. Who waits may sleep, and be
// woken for 25 to 100 µs, or look again and again, for 3: gVisor calls that its fast path, and turns it on after a millisecond
// with something to do in it. That is right for a program that makes thousands of calls, and wrong for all that is short: who looks
// needs a processor, which the start of a sandbox or of a command has other use for, with its many threads that all have a little
// to do. Here a burst of work gets the fast path when it has lasted for patience periods, some 20 ms: a sandbox's start takes an eighth less
// of the processors' time, the first command after a pause a sixth less of everybody's, and a program of many calls loses some milliseconds once.

const (
	// patience is how many periods with work pass in a burst before the fast path is tried.
	patience = 50
	// period is how often gVisor decides about the fast path.
	period = 400 * time.Microsecond
	// firstWait is gVisor's own patience.
	firstWait = 2
)

// patientPlatform makes systrap with a monitor of ours in place of its own, or as it is where it is not what we know.
func patientPlatform(c platform.Constructor, opts platform.Options) (platform.Platform, error) {
	ours := takeFastPath()
	p, err := c.New(opts)
	if err == nil && ours && !neverEnableFastPath {
		monitorFastPath()
	}
	return p, err
}

// takeFastPath has gVisor believe that its monitor was started, and reports whether ours can be.
var takeFastPath = sync.OnceValue(func() bool {
	if !fastPath.known() {
		return false
	}
	latencyMonitoring.Do(func() {})
	return true
})

// monitorFastPath starts the monitor, of which there is one for all platforms of a process.
var monitorFastPath = sync.OnceFunc(func() {
	fastPathContextLimit = uint32(maxSysmsgThreads * 2)
	go fastPath.monitor()
})

// fastPathState is gVisor's state of the fast path. It names what a monitor of ours needs, and leaves out the rest. There are two
// of most things, for the two who may look again and again: the program's side and the sentry's. The places are those that a
// program's debug information tells; a test compares them.
type fastPathState struct {
	_      [1280]byte             // what was measured
	waits  [2]int                 // how many more periods the fast path is put off
	_      [96]byte               // how often it did not pay
	on     [2]flagOnItsOwn        // whether it is used now
	_      [68]byte               // how many may look at a time
	used   [2]flagOnItsOwn        // whether it was used in this period
	decide func(s *fastPathState) // the decision at a period's end; it sets who makes the next
	_      [hostarch.CacheLineSize]byte
	worked flagOnItsOwn      // whether a period had work
	parked atomicbitops.Bool // whether the monitor waits for work
	wake   chan struct{}     // for a monitor that is parked
	_      [hostarch.CacheLineSize]byte
}

// flagOnItsOwn shares its line of the processor's cache with nothing that comes after it.
type flagOnItsOwn struct {
	atomicbitops.Bool
	_ [hostarch.CacheLineSize]byte
}

// known reports whether the state, which no monitor has touched yet, looks as it does in the gVisor that we know.
func (s *fastPathState) known() bool {
	return s.waits == [2]int{firstWait, firstWait} && s.decide != nil && cap(s.wake) == 1 && !s.parked.Load()
}

// monitor goes from burst to burst. Between them it sleeps in gVisor.
func (s *fastPathState) monitor() {
	for {
		s.burst()
		parkFastPath(s)
	}
}

// burst puts the fast path off, and then has gVisor decide about it after each period, to the first one without work.
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

// What gVisor has, under its own names.
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
