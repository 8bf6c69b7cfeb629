package service

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/ceiling"
	"github.com/carrel-dev/carrel/internal/quota"
	"github.com/carrel-dev/carrel/internal/state"
)

// Allowances says what projects and their keys may use and allow; package access implements it. The
// key is an ID, "" for none. No method waits for anything: they are called in the middle of
// creations.
type Allowances interface {
	// Quotas returns the quotas that bind a key, the project's first.
	Quotas(project, key string) []quota.Bound
	// Ceilings returns the ceilings that bind it.
	Ceilings(project, key string) []ceiling.Bound
	// Held says which budget, or which day's traffic, keeps a sandbox from running. Error: Exhausted.
	Held(op, project, key string, metadata map[string]string) error
	// Muted reports whether nothing may leave the sandboxes for now.
	Muted(project, key string) bool
}

// noAllowances bounds nothing.
type noAllowances struct{}

func (noAllowances) Quotas(string, string) []quota.Bound                            { return nil }
func (noAllowances) Ceilings(string, string) []ceiling.Bound                        { return nil }
func (noAllowances) Held(op, project, key string, metadata map[string]string) error { return nil }
func (noAllowances) Muted(string, string) bool                                      { return false }

const eventQuota = "quota.soft"

// quotasOf returns the quotas that bind a sandbox.
func (t *table) quotasOf(rec state.Record) []quota.Bound {
	return t.opts.Allowances.Quotas(rec.Sandbox.Project, rec.KeyID)
}

// chargeLocked charges a sandbox for its instance. The caller holds mu. creates is 1 for a new one.
func (t *table) chargeLocked(b *box, rec state.Record, bounds []quota.Bound, creates int) (
	soft []carrel.LimitHit, hit *carrel.LimitHit, after time.Duration) {
	if rec.Sandbox.Build != "" {
		creates = 0
	}
	return t.book.Take(&b.charge, bounds, rec.Sandbox.Project, rec.KeyID, quota.LoadOf(rec.Sandbox), creates, time.Now())
}

// roomFor says whether the quotas have room for a sandbox now. It spares a request that has none
// from waiting for its turn.
func (t *table) roomFor(op string, rec state.Record, creates int) error {
	bounds := t.quotasOf(rec)
	if len(bounds) == 0 {
		return nil
	}
	if rec.Sandbox.Build != "" {
		creates = 0
	}
	t.mu.Lock()
	hit, after := t.book.Check(bounds, quota.LoadOf(rec.Sandbox), creates, time.Now())
	t.mu.Unlock()
	if hit == nil {
		return nil
	}
	return t.errQuota(op, rec, hit, after)
}

// errQuota is the error for a sandbox that a quota refuses. after is when to try again, if that is
// known: otherwise it is when the first of the holder's sandboxes ends.
func (t *table) errQuota(op string, rec state.Record, hit *carrel.LimitHit, after time.Duration) error {
	if after == 0 && hit.Asked <= hit.Limit {
		var first time.Time
		for _, b := range t.awake() {
			b.mu.Lock()
			sb, key := b.rec.Sandbox, b.rec.KeyID
			b.mu.Unlock()
			if sb.Project == rec.Sandbox.Project && (hit.Key == "" || hit.Key == key) &&
				sb.State != carrel.Stopping && (first.IsZero() || sb.Ends.Before(first)) {
				first = sb.Ends
			}
		}
		if !first.IsZero() {
			after = max(time.Second, time.Until(first))
		}
	}
	return quota.Error(op, *hit, after)
}

// warnSoft tells that soft limits are passed.
func (j *journal) warnSoft(project string, hits []carrel.LimitHit) {
	for _, h := range hits {
		text := quota.Say(carrel.LimitHit{Name: h.Name, Of: h.Of, Limit: h.Limit, Used: h.Used + h.Asked})
		j.log.Warn("a soft limit is passed", "project", project, "limit", h.Name, "of", h.Of, "soft", h.Limit, "used", h.Used+h.Asked)
		j.tell(carrel.Event{Type: eventQuota, Project: project, Message: "soft limit: " + text,
			Fields: map[string]string{"limit": string(h.Name), "of": h.Of, "soft": h.Limit.String(), "used": (h.Used + h.Asked).String()}})
	}
}

// loadCreations notes the creations of the last minute, which an earlier service made.
func (s *Service) loadCreations(ctx context.Context) error {
	const page = 256
	now := time.Now()
	for before := int64(0); ; {
		events, err := s.opts.Store.EventsBefore(ctx, "", before, page)
		if err != nil {
			return err
		}
		for _, e := range events {
			if now.Sub(e.Time) > quota.Window {
				return nil
			}
			if before = e.Seq; e.Type != eventCreated || e.Fields["build"] != "" || e.Time.After(now) {
				continue
			}
			s.table.mu.Lock()
			s.table.book.Began(e.Project, e.Fields["keyID"], e.Time)
			s.table.mu.Unlock()
		}
		if len(events) < page {
			return nil
		}
	}
}

// QuotaUse returns what a holder uses of the limits that the service counts.
func (s *Service) QuotaUse(h carrel.Holder) map[carrel.LimitName]carrel.Milli {
	s.table.mu.Lock()
	used := s.table.book.Used(h, time.Now())
	s.table.mu.Unlock()
	used[carrel.LimitSnapshots] = mebibytes(s.archive.snaps.Bytes(h))
	return used
}

// mebibytes is a number of bytes in MiB, rounded up to a thousandth.
func mebibytes(n int64) carrel.Milli {
	return carrel.Milli((min(max(n, 0), math.MaxInt64>>11)*1000 + 1<<20 - 1) >> 20)
}

// bounds are the ceilings for what the caller does to a sandbox of a project: those of its key, and
// those of the key that made the sandbox, and those that a front says.
func (r *rules) bounds(ctx context.Context, project, madeBy string) []ceiling.Bound {
	c := carrel.CallerOf(ctx)
	out := r.opts.Allowances.Ceilings(project, madeBy)
	if c.Project == project && c.KeyID != "" && c.KeyID != madeBy {
		all := r.opts.Allowances.Ceilings(project, c.KeyID)
		out = append(out[:len(out):len(out)], all...)
	}
	return append(out[:len(out):len(out)], ceiling.In(ctx)...)
}

// mayMake says whether a planned sandbox is within its ceilings and budgets. The context has its
// caller, and the record its project and key.
func (r *rules) mayMake(ctx context.Context, rec state.Record, ttl time.Duration) error {
	sb := rec.Sandbox
	bounds := r.bounds(ctx, sb.Project, rec.KeyID)
	if err := ceiling.Sandbox(opCreate, bounds, sb); err != nil {
		return err
	}
	if sb.Build == "" {
		if err := ceiling.Timeout(opCreate, bounds, ttl); err != nil {
			return err
		}
	}
	return r.opts.Allowances.Held(opCreate, sb.Project, rec.KeyID, sb.Metadata)
}

// mayWake says whether a paused sandbox is within its ceilings and budgets. d is the timeout that is
// asked for.
func (r *rules) mayWake(ctx context.Context, op string, rec state.Record, d time.Duration) error {
	sb := rec.Sandbox
	bounds := r.bounds(ctx, sb.Project, rec.KeyID)
	if err := ceiling.Sandbox(op, bounds, sb); err != nil {
		return err
	}
	if err := ceiling.Timeout(op, bounds, d); err != nil {
		return err
	}
	return r.opts.Allowances.Held(op, sb.Project, rec.KeyID, sb.Metadata)
}

// lowerTimeout is the timeout of a request that names none, where the default is above a ceiling.
func (r *rules) lowerTimeout(ctx context.Context, d time.Duration) time.Duration {
	c := carrel.CallerOf(ctx)
	return ceiling.LowerTimeout(r.bounds(ctx, c.Project, c.KeyID), d)
}

// defaultLimits are the limits of a request that names none.
func (r *rules) defaultLimits(ctx context.Context) carrel.Limits {
	c := carrel.CallerOf(ctx)
	return ceiling.LowerLimits(r.bounds(ctx, c.Project, c.KeyID), r.opts.Limits)
}

// mayFork says whether the quotas allow so many forks in one call.
func (r *rules) mayFork(ctx context.Context, project string, count int) error {
	c := carrel.CallerOf(ctx)
	key := c.KeyID
	if c.Project != project {
		key = ""
	}
	for _, b := range r.opts.Allowances.Quotas(project, key) {
		if hit := quota.Over(b, carrel.LimitForks, 0, carrel.Milli(count)*quota.One); hit != nil {
			return quota.Error(opFork, *hit, 0)
		}
	}
	return nil
}

// mayKeep says whether the quotas have room for one more snapshot that a caller asked for. What the
// service takes by itself, when a timeout passes, is never refused: the state is worth more. size is
// the snapshot's, or 0 before it is known.
func (ar *archive) mayKeep(rec state.Record, cause carrel.Cause, size int64) error {
	switch cause {
	case carrel.CauseRequest, carrel.CausePause, carrel.CauseFork, carrel.CauseCommand,
		carrel.CauseGuest, carrel.CauseInterval:
	default:
		return nil
	}
	for _, b := range ar.opts.Allowances.Quotas(rec.Sandbox.Project, rec.KeyID) {
		asked := max(mebibytes(size), 1)
		if hit := quota.Over(b, carrel.LimitSnapshots, mebibytes(ar.snaps.Bytes(b.Holder)), asked); hit != nil {
			return quota.Error("", *hit, 0)
		}
	}
	return nil
}

// pausesAtOnce is how many sandboxes PauseHeld pauses at the same time.
const pausesAtOnce = 8

// PauseHeld pauses the running sandboxes of a project that a budget holds back. It returns how many
// it could not pause.
func (s *Service) PauseHeld(ctx context.Context, project string) int {
	var pauses errgroup.Group
	pauses.SetLimit(pausesAtOnce)
	var failed atomic.Int64
	for _, b := range s.table.awake() {
		rec := b.record()
		sb := rec.Sandbox
		if sb.Project != project || sb.State != carrel.Running || sb.Build != "" {
			continue
		}
		held := s.opts.Allowances.Held(opPause, project, rec.KeyID, sb.Metadata)
		if carrel.LimitOf(held) != nil || held == nil { // traffic is held at the wire
			continue
		}
		pauses.Go(func() error {
			_, err := s.moments.pauseIf(ctx, b, carrel.PauseOptions{Cause: carrel.CauseBudget}, nil)
			if kind := carrel.KindOf(err); err != nil && kind != carrel.NotFound && kind != carrel.Conflict {
				s.log.Error("a sandbox over its budget could not be paused", "sandbox", b.id, "err", err)
				failed.Add(1)
			}
			return nil
		})
	}
	_ = pauses.Wait() // each has told its error
	return int(failed.Load())
}

// Remute tells the wire anew what may leave the sandboxes of a project.
func (s *Service) Remute(project string) {
	for _, b := range s.table.awake() {
		if b.public().Project != project {
			continue
		}
		if err := s.networks.applyNetwork(opNetwork, b); err != nil {
			s.log.Error("apply a quota of traffic", "sandbox", b.id, "err", err)
		}
	}
}

// Tell writes an event about a project.
func (s *Service) Tell(e carrel.Event) { s.journal.tell(e) }
