package service

import (
	"context"
	"errors"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/admission"
)

// Builds: few at once, for each takes all processors and a lot of memory, and they may
// wait for long.
const (
	maxBuilds     = 2
	queuedBuilds  = 32
	maxBuildWait  = 10 * time.Minute
	classOfBuilds = "build"
)

// openGates makes the gates.
func (s *Service) openGates() {
	s.gate = admission.New(admission.Options{MaxStarting: s.opts.MaxStarting, MaxQueued: s.opts.MaxQueued, MaxWait: s.opts.MaxWait, Check: s.opts.Room})
	s.builds = admission.New(admission.Options{Fixed: true, MaxStarting: maxBuilds, MaxQueued: queuedBuilds, MaxWait: maxBuildWait,
		Stuck: maxBuildWait, Flag: "the builds' own bound, which is fixed"})
}

// closeGates sends away all who wait.
func (s *Service) closeGates() {
	err := &carrel.Error{Op: "start sandbox", Kind: carrel.Unavailable, Err: errClosing}
	s.gate.Close(err)
	s.builds.Close(err)
}

// Admission is what goes on at the gate before each start.
func (s *Service) Admission() admission.State { return s.gate.State() }

// Committed is what the memory limits of all sandboxes come to, in MiB, of those that live and those
// that are ready: an adoption asks nobody any more.
func (s *Service) Committed() int {
	sum := s.warm.committed()
	for _, b := range s.snapshot() {
		b.mu.Lock()
		if b.rec.Sandbox.State != carrel.Paused && b.rec.Sandbox.Tier != carrel.Sim {
			sum += b.rec.Sandbox.Limits.MemoryMB
		}
		b.mu.Unlock()
	}
	return sum
}

// enterCreate waits for the turn of a creation.
func (s *Service) enterCreate(ctx context.Context, p *plan) (*admission.Pass, error) {
	if s.full() { // there is no point in waiting for that
		return nil, s.errFull(opCreate)
	}
	sb := p.rec.Sandbox
	class := "create " + string(sb.Tier)
	if !p.from.boots() {
		class = "restore " + string(sb.Tier)
	}
	return s.enter(ctx, admission.Request{Op: opCreate, Lane: admission.Create, Tenant: p.rec.Owner, Class: class, MemoryMB: memoryOf(sb)})
}

// enter waits for a turn. Where memory is short, what is ready gives way to what is wanted.
func (s *Service) enter(ctx context.Context, r admission.Request) (*admission.Pass, error) {
	pass, err := s.gate.Enter(ctx, r)
	var e *carrel.Error
	if errors.As(err, &e) && e.Kind == carrel.Unavailable && e.Field == "memory" && s.giveWay(r.MemoryMB) {
		pass, err = s.gate.Enter(ctx, r)
	}
	return pass, err
}

// How long what nobody waits for waits for its turn before it is thought over again, and how
// often it asks.
const (
	spareTime = 2 * time.Second
	sparePoll = 20 * time.Millisecond
)

// enterSpare waits until the machine has time for what nobody waits for; admission.ErrBusy
// says that it had none.
func (s *Service) enterSpare(ctx context.Context, sb carrel.Sandbox, class string) (*admission.Pass, error) {
	r := s.spareRequest(sb, class)
	for over := time.Now().Add(spareTime); ; {
		pass, err := s.gate.Spare(r)
		if !errors.Is(err, admission.ErrBusy) || time.Now().After(over) || !sleep(ctx, sparePoll) {
			return pass, err
		}
	}
}

// spareRequest is how what nobody waits for asks for its turn.
func (s *Service) spareRequest(sb carrel.Sandbox, class string) admission.Request {
	return admission.Request{Op: opWarm, Class: class + " " + string(sb.Tier), MemoryMB: memoryOf(sb)}
}

// enterWake waits for the turn of what brings a sandbox back. What is done with the
// context it returns needs no other.
func (s *Service) enterWake(ctx context.Context, op string, b *box) (context.Context, *admission.Pass, error) {
	if s.full() && b.public().State == carrel.Paused {
		return ctx, nil, s.errFull(op)
	}
	rec := b.record()
	pass, err := s.enter(ctx, admission.Request{Op: op, Lane: admission.Wake, Tenant: rec.Owner, Class: "restore " + string(rec.Sandbox.Tier),
		MemoryMB: memoryOf(rec.Sandbox)})
	if err != nil {
		return ctx, nil, err
	}
	return admission.Inside(ctx, pass), pass, nil
}

// memoryOf is what a sandbox may take of the machine's memory, in MiB.
func memoryOf(sb carrel.Sandbox) int {
	if sb.Tier == carrel.Sim {
		return 0
	}
	return sb.Limits.MemoryMB
}

// enterBuild waits for the turn of a template.
func (s *Service) enterBuild(ctx context.Context, op string) (*admission.Pass, error) {
	return s.builds.Enter(ctx, admission.Request{Op: op, Lane: admission.Create, Tenant: admission.TenantOf(ctx), Class: classOfBuilds})
}

// full reports whether as many sandboxes live as may.
func (s *Service) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opts.MaxSandboxes > 0 && s.live >= s.opts.MaxSandboxes
}
