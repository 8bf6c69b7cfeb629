package service

import (
	"context"
	"errors"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/admission"
	"github.com/carrel-dev/carrel/internal/service/warm"
)

// Only a few builds run at once, because each uses all processors and a lot of memory. A build may
// wait for a long time.
const (
	maxBuilds     = 2
	queuedBuilds  = 32
	maxBuildWait  = 10 * time.Minute
	classOfBuilds = "build"
)

// gates hold the queues in which starts and builds wait for their turn.
type gates struct {
	opts   *Options
	table  *table
	warm   *warm.Pool[*prepared]
	gate   *admission.Gate // before each start
	builds *admission.Gate // before each template
}

// open makes the gates. The pool gives up warm sandboxes when memory is short.
func (g *gates) open(p *warm.Pool[*prepared]) {
	g.warm = p
	g.gate = admission.New(admission.Options{MaxStarting: g.opts.MaxStarting, MaxQueued: g.opts.MaxQueued, MaxWait: g.opts.MaxWait, Check: g.opts.Room})
	g.builds = admission.New(admission.Options{Fixed: true, MaxStarting: maxBuilds, MaxQueued: queuedBuilds, MaxWait: maxBuildWait,
		Stuck: maxBuildWait, Flag: "the builds' own bound, which is fixed"})
}

// close refuses all waiting requests.
func (g *gates) close() {
	err := &carrel.Error{Op: "start sandbox", Kind: carrel.Unavailable, Err: errClosing}
	g.gate.Close(err)
	g.builds.Close(err)
}

// Admission returns the state of the gate before each start.
func (g *gates) Admission() admission.State { return g.gate.State() }

// Committed is the sum of the memory limits of all living and all warm sandboxes, in MiB. Warm ones
// count because their adoption asks for no memory again.
func (s *Service) Committed() int {
	sum := s.warm.CommittedMB()
	for _, b := range s.table.awake() {
		b.mu.Lock()
		if b.rec.Sandbox.State != carrel.Paused && b.rec.Sandbox.Tier != carrel.Sim {
			sum += b.rec.Sandbox.Limits.MemoryMB
		}
		b.mu.Unlock()
	}
	return sum
}

// enterCreate waits for the turn of a creation.
func (g *gates) enterCreate(ctx context.Context, p *plan) (*admission.Pass, error) {
	if g.table.full() { // no use to wait for a place
		return nil, g.table.errFull(opCreate)
	}
	if err := g.table.roomFor(opCreate, p.rec, 1); err != nil {
		return nil, err
	}
	sb := p.rec.Sandbox
	class := "create " + string(sb.Tier)
	if !p.from.boots() {
		class = "restore " + string(sb.Tier)
	}
	return g.enter(ctx, admission.Request{Op: opCreate, Lane: admission.Create, Share: p.rec.Sandbox.Project, Class: class, MemoryMB: memoryOf(sb)})
}

// enter waits for a turn. When memory is short, the pool gives up warm sandboxes for the request.
func (g *gates) enter(ctx context.Context, r admission.Request) (*admission.Pass, error) {
	pass, err := g.gate.Enter(ctx, r)
	var e *carrel.Error
	if errors.As(err, &e) && e.Kind == carrel.Unavailable && e.Field == "memory" && g.warm.GiveWay(r.MemoryMB) {
		pass, err = g.gate.Enter(ctx, r)
	}
	return pass, err
}

// spareTime is how long work that no caller waits for may wait for its turn before it gives up.
// sparePoll is the pause between two tries.
const (
	spareTime = 2 * time.Second
	sparePoll = 20 * time.Millisecond
)

// enterSpare waits until the machine has time for work that no caller waits for. It returns
// admission.ErrBusy when the machine had no time within spareTime.
func (g *gates) enterSpare(ctx context.Context, sb carrel.Sandbox, class string) (*admission.Pass, error) {
	r := g.spareRequest(sb, class)
	for over := time.Now().Add(spareTime); ; {
		pass, err := g.gate.Spare(r)
		if !errors.Is(err, admission.ErrBusy) || time.Now().After(over) || !sleep(ctx, sparePoll) {
			return pass, err
		}
	}
}

// spareRequest is the admission request for work that no caller waits for.
func (g *gates) spareRequest(sb carrel.Sandbox, class string) admission.Request {
	return admission.Request{Op: warm.Op, Class: class + " " + string(sb.Tier), MemoryMB: memoryOf(sb)}
}

// enterWake waits for a turn to bring a sandbox back. Work done with the returned context needs no
// other turn.
func (g *gates) enterWake(ctx context.Context, op string, b *box) (context.Context, *admission.Pass, error) {
	if g.table.full() && b.public().State == carrel.Paused {
		return ctx, nil, g.table.errFull(op)
	}
	rec := b.record()
	if rec.Sandbox.State == carrel.Paused {
		if err := g.table.roomFor(op, rec, 0); err != nil {
			return ctx, nil, err
		}
	}
	pass, err := g.enter(ctx, admission.Request{Op: op, Lane: admission.Wake, Share: rec.Sandbox.Project, Class: "restore " + string(rec.Sandbox.Tier),
		MemoryMB: memoryOf(rec.Sandbox)})
	if err != nil {
		return ctx, nil, err
	}
	return admission.Inside(ctx, pass), pass, nil
}

// memoryOf is the memory that a sandbox may take from the machine, in MiB.
func memoryOf(sb carrel.Sandbox) int {
	if sb.Tier == carrel.Sim {
		return 0
	}
	return sb.Limits.MemoryMB
}

// enterBuild waits for the turn of a template.
func (g *gates) enterBuild(ctx context.Context, op string) (*admission.Pass, error) {
	return g.builds.Enter(ctx, admission.Request{Op: op, Lane: admission.Create, Share: carrel.CallerOf(ctx).Project, Class: classOfBuilds})
}
