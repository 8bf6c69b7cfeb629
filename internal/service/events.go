package service

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

// The types of events.
const (
	eventStarted     = "service.started"
	eventCreated     = "sandbox.created"
	eventEnded       = "sandbox.ended"
	eventAdopted     = "sandbox.adopted"
	eventPaused      = "sandbox.paused"
	eventPauseFailed = "sandbox.pause_failed"
	eventResumed     = "sandbox.resumed"
	eventSnapshot    = "sandbox.snapshot"
	eventRolledBack  = "sandbox.rolled_back"
	eventStart       = "sandbox.start_command"
	eventStartFailed = "sandbox.start_command_failed"
	eventGolden      = "template.ready"
	eventNotReady    = "template.not_ready"
	eventUpdated     = "sandbox.updated"
)

// lifeEvents are the events of a sandbox's life. They say what the sandbox was at that moment, so
// that they make sense when it has gone.
var lifeEvents = map[string]bool{
	eventCreated: true, eventEnded: true, eventPaused: true, eventResumed: true,
	eventSnapshot: true, eventRolledBack: true, eventPromoted: true, eventUpdated: true,
	carrel.ConnectionHeld: true, carrel.ConnectionAnswered: true,
}

// eventSandbox is what an event says of its sandbox.
func eventSandbox(sb carrel.Sandbox) *carrel.EventSandbox {
	return &carrel.EventSandbox{Template: sb.Template, TemplateOf: sb.TemplateOf,
		Metadata: maps.Clone(sb.Metadata), Started: sb.Started, Ends: sb.Ends,
		CPUs: sb.Limits.CPUs, MemoryMB: sb.Limits.MemoryMB}
}

// life is what an event says of the living sandbox with an ID; nil if there is none.
func (t *table) life(id carrel.ID) *carrel.EventSandbox {
	b := t.boxOf(id)
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return eventSandbox(b.rec.Sandbox)
}

// How long events are kept: a week, as E2B does. If there are more than keepMost, the oldest go
// earlier. But the events of the last hour stay, so that callers can still ask about an end, and so
// do those of living sandboxes and those that Options.EventsNeeded names, for a day.
const (
	keepAfterEnd  = time.Hour
	keepUnderLoad = 24 * time.Hour
	keepAtMost    = 7 * 24 * time.Hour
	keepMost      = 100_000
	eventPage     = 256
)

// hub wakes the readers that follow events. It holds no events: each reader reads them from the
// store at its own pace. So a slow reader delays nobody and misses nothing.
type hub struct {
	mu   sync.Mutex
	subs map[chan struct{}]struct{}
	last int64 // the newest event's number
}

func newHub() hub { return hub{subs: map[chan struct{}]struct{}{}} }

func (h *hub) subscribe() chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := make(chan struct{}, 1)
	h.subs[c] = struct{}{}
	return c
}

func (h *hub) unsubscribe(c chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subs, c)
}

// wake tells all readers that event seq is in the store.
func (h *hub) wake(seq int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = max(h.last, seq)
	for c := range h.subs {
		select {
		case c <- struct{}{}:
		default: // it is awake
		}
	}
}

func (h *hub) newest() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// journal writes events and lets callers read them.
type journal struct {
	opts  *Options
	log   *slog.Logger
	table *table
	hub   hub

	census *census
}

// emit stores an event and wakes the readers.
func (j *journal) emit(ctx context.Context, e carrel.Event) error {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	e.Time = e.Time.UTC().Round(0)
	if e.ID != "" && e.Project == "" {
		e.Project, _ = j.table.Project(e.ID)
	}
	if lifeEvents[e.Type] && e.Of == nil && e.ID != "" {
		e.Of = j.table.life(e.ID)
	}
	if e.Type == eventCreated || e.Type == eventResumed {
		j.census.started(e.Project)
	}
	stored, err := j.opts.Store.AppendEvent(ctx, e)
	j.hub.wake(stored.Seq) // also after an error: the event may have been written
	return err
}

// How a sandbox got its first process, as the event of its creation says.
const (
	startCold     = "cold"     // it booted
	startWarm     = "warm"     // it was made ahead
	startGolden   = "golden"   // restored from its template's golden snapshot
	startSnapshot = "snapshot" // restored from a snapshot of another sandbox
)

// createdEvent is the event of a sandbox's creation. start may be "" when it is not known any more.
func createdEvent(rec state.Record, start string) carrel.Event {
	sb := rec.Sandbox
	name := sb.Alias
	if name == "" {
		name = sb.Template
	}
	l := sb.Limits
	fields := map[string]string{"template": sb.Template, "tier": string(sb.Tier)}
	if start != "" {
		fields["start"] = start
	}
	if rec.KeyID != "" {
		fields["keyID"] = rec.KeyID
	}
	if sb.Build != "" {
		fields["build"] = sb.Build
	}
	return carrel.Event{Type: eventCreated, ID: sb.ID, Project: sb.Project, Time: sb.Started,
		Message: fmt.Sprintf("created from template %s in tier %s with %g CPUs, %d MiB of memory, %d MiB of disk and %d processes; ends at %s",
			name, sb.Tier, l.CPUs, l.MemoryMB, l.DiskMB, l.Pids, sb.Ends.UTC().Format(time.RFC3339)),
		Fields: fields, Of: eventSandbox(sb)}
}

// endedEvent is the event of a sandbox's end.
func endedEvent(sb carrel.Sandbox, v verdict) carrel.Event {
	return carrel.Event{Type: eventEnded, ID: sb.ID, Project: sb.Project, Reason: v.reason, Message: v.message,
		Fields: map[string]string{"template": sb.Template, "tier": string(sb.Tier)}, Of: eventSandbox(sb)}
}

// updatedEvent is the event of a change of a sandbox's settings; what names the setting.
func updatedEvent(sb carrel.Sandbox, message, what string) carrel.Event {
	return carrel.Event{Type: eventUpdated, ID: sb.ID, Project: sb.Project, Message: message,
		Fields: map[string]string{"changed": what}, Of: eventSandbox(sb)}
}

// Events implements carrel.Sandboxes. It leaves out events that were removed because of their age.
func (j *journal) Events(ctx context.Context, after int64) iter.Seq2[carrel.Event, error] {
	const op = "follow events"
	if after == 0 {
		after = j.hub.newest()
	}
	return func(yield func(carrel.Event, error) bool) {
		if after < 0 {
			yield(carrel.Event{}, invalid(op, "after", "%d is negative", after))
			return
		}
		wake := j.hub.subscribe()
		defer j.hub.unsubscribe(wake)
		for after := after; ; {
			page, err := j.opts.Store.Events(ctx, "", after, eventPage)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				yield(carrel.Event{}, err)
				return
			}
			for _, e := range page {
				if !yield(e, nil) || ctx.Err() != nil {
					return
				}
				after = e.Seq
			}
			if len(page) == eventPage {
				continue
			}
			select {
			case <-wake:
			case <-ctx.Done():
				return
			case <-j.table.ctx.Done():
				yield(carrel.Event{}, &carrel.Error{Op: op, Kind: carrel.Unavailable, Err: errClosing})
				return
			}
		}
	}
}

// tombstoneAge is how long the deletion of a record is remembered. A leftover is removed within
// this time, or at the next start.
const tombstoneAge = 30 * 24 * time.Hour

// trim removes old events now and then, until the service closes.
func (s *Service) trim() {
	tick := time.NewTicker(10 * time.Minute)
	defer tick.Stop()
	for {
		now := time.Now()
		before, err := s.forgetBefore(now)
		if err == nil {
			err = s.opts.Store.TrimEvents(s.table.ctx, before)
		}
		if err != nil && s.table.ctx.Err() == nil {
			s.log.Error("forget old events", "err", err)
		}
		if err := s.opts.Store.TrimTombstones(s.table.ctx, now.Add(-tombstoneAge)); err != nil && s.table.ctx.Err() == nil {
			s.log.Error("forget old tombstones", "err", err)
		}
		s.lost.expire(s.table.ctx)
		s.roots.sweepRoots()
		select {
		case <-tick.C:
		case <-s.table.ctx.Done():
			return
		}
	}
}

// forgetBefore returns the time before which events are forgotten.
func (s *Service) forgetBefore(now time.Time) (time.Time, error) {
	before, newest := now.Add(-keepAtMost), s.journal.hub.newest()
	if newest <= keepMost {
		return before, nil
	}
	oldestOf := func(after int64) (time.Time, error) { // of the events with greater numbers
		page, err := s.opts.Store.Events(s.table.ctx, "", after, 1)
		if err != nil || len(page) == 0 {
			return now, err
		}
		return page[0].Time, nil
	}
	last, err := oldestOf(newest - keepMost)
	if err != nil {
		return before, err
	}
	needed := now.Add(-keepAfterEnd)
	if t, any := s.table.roll.oldest(); any && t.Before(needed) {
		needed = t
	}
	if s.opts.EventsNeeded != nil {
		t, err := oldestOf(s.opts.EventsNeeded())
		if err != nil {
			return before, err
		}
		if t.Before(needed) {
			needed = t
		}
	}
	if day := now.Add(-keepUnderLoad); needed.Before(day) {
		needed = day
	}
	if needed.Before(last) {
		last = needed
	}
	if last.After(before) {
		before = last
	}
	return before, nil
}

// Bounds of Logs.
const (
	defaultLogs = 1000
)

// Logs implements carrel.Sandboxes. It lists the events of a sandbox in order. They can be read for
// as long as events are kept.
func (j *journal) Logs(ctx context.Context, id carrel.ID, opts carrel.LogOptions) ([]carrel.LogEntry, error) {
	const op = "read logs"
	if opts.Limit < 0 || opts.Limit > carrel.MaxLogs {
		return nil, invalid(op, "limit", "%d is not between 0 and %d", opts.Limit, carrel.MaxLogs)
	}
	if opts.Limit == 0 {
		opts.Limit = defaultLogs
	}
	b, missing := j.table.find(op, id)
	events, err := j.eventsOf(ctx, id)
	if err != nil {
		return nil, err
	}
	if b == nil && len(events) == 0 {
		return nil, missing
	}
	if b != nil && !slices.ContainsFunc(events, func(e carrel.Event) bool { return e.Type == eventCreated }) {
		events = slices.Insert(events, 0, createdEvent(b.record(), "")) // removed for its age, or not written yet
	}
	var out []carrel.LogEntry
	for _, e := range events {
		if !e.Time.Before(opts.Since) && (opts.Until.IsZero() || !e.Time.After(opts.Until)) {
			out = append(out, logEntry(e))
		}
	}
	if opts.NewestFirst {
		slices.Reverse(out)
	}
	return out[:min(len(out), opts.Limit)], nil
}

// eventsOf reads all events of one sandbox.
func (j *journal) eventsOf(ctx context.Context, id carrel.ID) ([]carrel.Event, error) {
	var out []carrel.Event
	var after int64
	for {
		page, err := j.opts.Store.Events(ctx, id, after, eventPage)
		if err != nil {
			return nil, err
		}
		out = append(out, page...)
		if len(page) < eventPage {
			return out, nil
		}
		after = page[len(page)-1].Seq
	}
}

// logEntry is an event as a line of its sandbox's log.
func logEntry(e carrel.Event) carrel.LogEntry {
	fields := maps.Clone(e.Fields)
	if fields == nil {
		fields = map[string]string{}
	}
	fields["event"] = e.Type
	l := carrel.LogEntry{Time: e.Time, Level: "info", Message: e.Message, Fields: fields}
	switch e.Type {
	case eventStartFailed, eventPauseFailed, eventCheckpointFailed:
		l.Level = "warn"
	}
	if e.Reason == "" {
		return l
	}
	fields["reason"] = string(e.Reason)
	l.Message = fmt.Sprintf("ended (%s): %s", e.Reason, e.Message)
	switch e.Reason {
	case carrel.EndOutOfMemory, carrel.EndCrashed, carrel.EndLost:
		l.Level = "error"
	}
	return l
}

// tell writes an event. Nothing depends on its success.
func (j *journal) tell(e carrel.Event) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(j.table.ctx), undoTime)
	defer cancel()
	if err := j.emit(ctx, e); err != nil && j.table.ctx.Err() == nil {
		j.log.Error("write event", "sandbox", e.ID, "err", err)
	}
}
