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

//lint:file-ignore U1000 a state of gVisor's has the fields that it has

const (
	// patience is how many periods with work pass in a burst before the fast path is tried.
	patience = 50
	// fastPathPeriod and firstBackoff are gVisor's: how long a period is, and its own patience.
	fastPathPeriod = 400 * time.Microsecond
	firstBackoff   = 2
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

// fastPathState is the state that gVisor has of its fast path, field by field.
// Source: gVisor, pkg/sentry/platform/systrap/metrics.go.
type fastPathState struct {
	stubBoundBaselineLatency   latencyBuckets
	sentryBoundBaselineLatency latencyBuckets

	stubFPBackoff   int
	sentryFPBackoff int

	stubFPRecentFailures   int
	sentryFPRecentFailures int

	consecutiveStubFPFailures   int
	consecutiveSentryFPFailures int

	_                     [hostarch.CacheLineSize]byte
	stubFastPathEnabled   atomicbitops.Bool
	_                     [hostarch.CacheLineSize]byte
	sentryFastPathEnabled atomicbitops.Bool
	_                     [hostarch.CacheLineSize]byte
	nrMaxAwakeStubThreads atomicbitops.Uint32
	_                     [hostarch.CacheLineSize]byte
	usedStubFastPath      atomicbitops.Bool
	_                     [hostarch.CacheLineSize]byte
	usedSentryFastPath    atomicbitops.Bool
	_                     [hostarch.CacheLineSize]byte
	curState              func(*fastPathState)
	_                     [hostarch.CacheLineSize]byte
	recentActivity        atomicbitops.Bool
	_                     [hostarch.CacheLineSize]byte
	monitorParked         atomicbitops.Bool
	monitorWakeup         chan struct{}
	_                     [hostarch.CacheLineSize]byte
}

// latencyBuckets count how many changes of hands took how long.
type latencyBuckets [numLatencyBuckets]atomicbitops.Uint64

const numLatencyBuckets = 80

// known reports whether the state, which no monitor has touched yet, looks as it does in the gVisor that we know.
func (s *fastPathState) known() bool {
	return s.stubFPBackoff == firstBackoff && s.sentryFPBackoff == firstBackoff && s.curState != nil && cap(s.monitorWakeup) == 1 &&
		!s.monitorParked.Load()
}

// monitor is gVisor's controlFastPath but for the calls of wait.
func (s *fastPathState) monitor() {
	s.wait()
	for {
		time.Sleep(fastPathPeriod)
		s.curState(s)
		s.usedStubFastPath.Store(false)
		s.usedSentryFastPath.Store(false)
		if !s.recentActivity.Swap(false) {
			parkFastPath(s)
			s.wait()
		}
	}
}

// wait puts the fast path off: a burst begins.
func (s *fastPathState) wait() {
	s.stubFPBackoff, s.sentryFPBackoff = max(s.stubFPBackoff, patience), max(s.sentryFPBackoff, patience)
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
