package gvisor

import (
	"reflect"
	"sync"
	"sync/atomic"
	"unsafe"

	"gvisor.dev/gvisor/pkg/abi/linux"
	gcontext "gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	gsync "gvisor.dev/gvisor/pkg/sync"
)

// systrapName is how gVisor intercepts system calls. It needs no hardware.
const systrapName = "systrap"

// platformName is systrap with one thing done at a better moment, see sandboxPlatform. It is registered in the processes of this
// package only.
const platformName = "carrel"

// registerPlatform makes platformName known to gVisor in this process.
var registerPlatform = sync.OnceValue(func() error {
	c, err := platform.Lookup(systrapName)
	if err == nil {
		platform.Register(platformName, sandboxConstructor{c})
	}
	return err
})

// sandboxConstructor makes platforms that know when the first program is about to run. All else, the rules of its filter above all,
// is systrap's.
type sandboxConstructor struct{ platform.Constructor }

// madeAhead is a blank sentry's platform. It was made with the options that the sandbox's is asked for: all but the number of processors
// are constant here, and a job with another number is given to no blank.
var madeAhead atomic.Pointer[sandboxPlatform]

// New implements platform.Constructor.
func (c sandboxConstructor) New(opts platform.Options) (platform.Platform, error) {
	if p := madeAhead.Swap(nil); p != nil {
		return p, nil
	}
	p, err := patientPlatform(c.Constructor, opts)
	if err != nil {
		return nil, err
	}
	return &sandboxPlatform{Platform: p}, nil
}

// sandboxPlatform is systrap that readies the clocks.
//
// A program reads the time without a system call from a page that the sentry keeps. The page holds nothing until the sentry
// has compared the processor's counter with the host's clock twice, a second apart, and so each look at a clock costs a
// trip into the sentry in just that second in which a new or restored sandbox does its first work: a Go program does hundreds.
// Here the second comparison is made when the first program is about to run. It comes some milliseconds after the first
// and not a second, so what it says of the counter's speed may be off by some millionths: until the next one, a second later,
// the clock can be wrong by microseconds, which gVisor then corrects without a jump, as it does always.
type sandboxPlatform struct {
	platform.Platform

	mu    sync.Mutex
	ready atomic.Bool // the clocks were compared, or never can be
}

// NewContext implements platform.Platform. The first of a new sandbox is made when all is set up but nothing runs; those of a restored one
// while the state is read, before its clocks are set.
func (p *sandboxPlatform) NewContext(ctx gcontext.Context) platform.Context {
	c := p.Platform.NewContext(ctx)
	held.Load().note(ctx)
	if p.readyClocks(ctx); !p.ready.Load() || drawsBootID.Load() {
		return &earlyContext{Context: c, p: p}
	}
	return c
}

// readyClocks compares the clocks of a task's kernel once, as soon as they are set.
func (p *sandboxPlatform) readyClocks(ctx gcontext.Context) {
	if p.ready.Load() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	k := kernel.KernelFromContext(ctx)
	if k == nil || p.ready.Load() {
		return
	}
	if t := k.Timekeeper(); t != nil && compareClocks(t) {
		p.ready.Store(true)
	}
}

// earlyContext is that of a task from before the clocks were set, a restored one.
type earlyContext struct {
	platform.Context
	p *sandboxPlatform
}

// Switch implements platform.Context.
func (c *earlyContext) Switch(ctx gcontext.Context, mm platform.MemoryManager, ac *arch.Context64, cpu int32) (*linux.SignalInfo, hostarch.AccessType, error) {
	c.p.readyClocks(ctx)
	c.p.drawBootID(ctx)
	return c.Context.Switch(ctx, mm, ac, cpu)
}

// updateClocks is what the timekeeper does each second: compare, and write the page.
//
//go:linkname updateClocks gvisor.dev/gvisor/pkg/sentry/kernel.(*Timekeeper).update
func updateClocks(t *kernel.Timekeeper, parked bool)

// compareClocks has a timekeeper compare its clocks now and returns false if they are not set yet. A timekeeper of another form than we
// know is left alone.
func compareClocks(t *kernel.Timekeeper) bool {
	mu, page := timekeeperFields()
	if mu == nil {
		return true
	}
	lock := (*gsync.Mutex)(unsafe.Add(unsafe.Pointer(t), *mu)) // the field that guards updates
	lock.Lock()
	defer lock.Unlock()
	if *(**kernel.VDSOParamPage)(unsafe.Add(unsafe.Pointer(t), *page)) == nil {
		return false // the clocks stand still
	}
	updateClocks(t, false)
	return true
}

// timekeeperFields are the offsets of two fields of a timekeeper; nil if it has not both.
var timekeeperFields = sync.OnceValues(func() (mu, page *uintptr) {
	of := func(name string, is reflect.Type) *uintptr {
		f, ok := reflect.TypeFor[kernel.Timekeeper]().FieldByName(name)
		if !ok || f.Type != is {
			return nil
		}
		return &f.Offset
	}
	mu, page = of("updateMu", reflect.TypeFor[gsync.Mutex]()), of("params", reflect.TypeFor[*kernel.VDSOParamPage]())
	if mu == nil || page == nil {
		return nil, nil
	}
	return mu, page
})
