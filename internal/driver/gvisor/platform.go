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

// systrapName is gVisor's way to intercept system calls that needs no hardware support.
const systrapName = "systrap"

// platformName is systrap with one step done at a better moment, see sandboxPlatform. Only the
// processes of this package register it.
const platformName = "carrel"

// registerPlatform makes platformName known to gVisor in this process.
var registerPlatform = sync.OnceValue(func() error {
	c, err := platform.Lookup(systrapName)
	if err == nil {
		platform.Register(platformName, sandboxConstructor{c})
	}
	return err
})

// sandboxConstructor makes platforms that know when the first program is about to run. Everything
// else comes from systrap, above all the rules of its filter.
type sandboxConstructor struct{ platform.Constructor }

// madeAhead is a blank sentry's platform. It was made with the same options as the sandbox asks
// for. Only the number of processors can differ between sandboxes, and a blank gets no job with
// another number.
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

// sandboxPlatform is gVisor's platform systrap. It also makes the clocks of programs ready early.
//
// A program reads the time without a system call, from a page that the sentry keeps. The sentry
// fills the page only after it has compared the processor's counter with the host's clock twice, a
// second apart. Until then each reading of a clock is a call into the sentry. In just that second a
// new or restored sandbox does its first work, and a Go program reads clocks hundreds of times.
//
// So here the second comparison is made when the first program is about to run. It comes some
// milliseconds after the first comparison instead of a second. So its estimate of the counter's
// speed may be off by some millionths. Until the next comparison, a second later, the clock can be
// wrong by microseconds. gVisor then corrects it without a jump, as always.
type sandboxPlatform struct {
	platform.Platform

	mu    sync.Mutex
	ready atomic.Bool // the clocks were compared, or never can be
}

// NewContext implements platform.Platform. A new sandbox makes its first context when everything is
// set up and nothing runs yet. A restored sandbox makes its contexts while its state is read,
// before its clocks are set.
func (p *sandboxPlatform) NewContext(ctx gcontext.Context) platform.Context {
	c := p.Platform.NewContext(ctx)
	held.Load().note(ctx)
	if p.readyClocks(ctx); !p.ready.Load() || drawsBootID.Load() || held.Load() != nil {
		return &earlyContext{Context: c, p: p}
	}
	return c
}

// MapUnit implements platform.Platform. A task waits until all is read that gVisor maps for it at
// once: up to 32 MB, unless there is a unit.
func (p *sandboxPlatform) MapUnit() uint64 {
	if unit := held.Load().unit(); unit > 0 {
		return unit
	}
	return p.Platform.MapUnit()
}

// readyClocks compares the clocks of a task's kernel once, as soon as the clocks are set.
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

// earlyContext is the context of a restored task, which was made before the clocks were set, or of a
// task in a sandbox whose memory is not read yet.
type earlyContext struct {
	platform.Context
	p *sandboxPlatform
}

// Switch implements platform.Context.
func (c *earlyContext) Switch(ctx gcontext.Context, mm platform.MemoryManager, ac *arch.Context64, cpu int32) (*linux.SignalInfo, hostarch.AccessType, error) {
	c.p.readyClocks(ctx)
	c.p.drawBootID(ctx)
	info, access, err := c.Context.Switch(ctx, mm, ac, cpu)
	held.Load().stir()
	return info, access, err
}

// updateClocks is the timekeeper's work of each second: compare the clocks, and write the page.
//
//go:linkname updateClocks gvisor.dev/gvisor/pkg/sentry/kernel.(*Timekeeper).update
func updateClocks(t *kernel.Timekeeper, parked bool)

// compareClocks makes a timekeeper compare its clocks now. It returns false if the clocks are not
// set yet. It does not touch a timekeeper whose form we don't know.
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

// timekeeperFields are the offsets of two fields of a timekeeper; nil if one of them is missing.
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
