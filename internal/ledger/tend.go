package ledger

import (
	"context"
	"errors"
	"time"

	"github.com/carrel-dev/carrel/internal/state"
)

// stepSize is how far the wall clock may leave the monotonic one between two heartbeats before that
// counts as a step. Corrections by NTP are far slower.
const stepSize = 500 * time.Millisecond

// seenID is the ID of the row that says when the ledger last knew that all open pieces went on.
const seenID = "seen"

// Run keeps the ledger until ctx ends, and then saves the last figures. It starts only after the
// service has adopted its sandboxes: a heartbeat says that all open pieces go on.
func (l *Ledger) Run(ctx context.Context) {
	tick := time.NewTicker(l.opts.Every)
	defer tick.Stop()
	for {
		if err := l.Tick(ctx); err != nil && ctx.Err() == nil {
			l.log.Error("write usage", "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			if err := l.beat(last, true); err != nil {
				l.log.Error("write usage", "err", err)
			}
			return
		}
	}
}

// Tick is one heartbeat. It cuts pieces where that is due, saves figures, and folds old usage.
func (l *Ledger) Tick(ctx context.Context) error {
	err := l.beat(ctx, false)
	now := l.opts.Clock()
	if before := day(now.Wall.Add(-l.opts.FoldAfter)); before.After(l.folded) {
		if ferr := l.Fold(ctx, now.Wall); ferr == nil {
			l.folded = before
		} else {
			err = errors.Join(err, ferr)
		}
	}
	if err != nil {
		l.failures.Add(1)
		return err
	}
	l.beats.Add(1)
	l.seen.Store(now.Wall.UnixNano())
	return nil
}

// Figures are counts of a ledger, for metrics.
type Figures struct {
	Open            int // pieces of usage that go on
	Beats, Failures uint64
	Seen            time.Time // the last heartbeat that succeeded; zero for none
}

// Figures counts.
func (l *Ledger) Figures() Figures {
	f := Figures{Beats: l.beats.Load(), Failures: l.failures.Load()}
	if at := l.seen.Load(); at != 0 {
		f.Seen = time.Unix(0, at)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f.Open = len(l.open)
	return f
}

// beat cuts and saves what is due, or saves everything.
func (l *Ledger) beat(ctx context.Context, all bool) error {
	now := l.opts.Clock()
	drift := now.Wall.Sub(l.last.Wall) - (now.Mono - l.last.Mono)
	stepped := drift > stepSize || drift < -stepSize
	due, living := l.due(now, stepped, all)
	for len(due) > 0 {
		n := min(writeAtOnce, len(due))
		if err := l.renew(ctx, due[:n], now, stepped); err != nil {
			return err
		}
		due = due[n:]
	}
	l.last = now
	if !living {
		return nil
	}
	return l.opts.Store.Apply(ctx, state.Change{PutUsage: []state.Usage{{ID: seenID, Kind: state.UsageSeen,
		Start: now.Wall.UTC(), Mono: now.Mono, Boot: now.Boot}}})
}

// due lists the subjects whose pieces must be cut or saved. living says that a sandbox runs.
func (l *Ledger) due(now Moment, stepped, all bool) (subjects []string, living bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for subject, p := range l.open {
		living = living || p.runs()
		_, doubtful := l.doubts[subject]
		if all && p.runs() || doubtful || l.cutDue(p, now, stepped) || l.saveDue(p, now) {
			subjects = append(subjects, subject)
		}
	}
	for subject := range l.doubts {
		if l.open[subject] == nil {
			subjects = append(subjects, subject)
		}
	}
	return subjects, living
}

// cutDue reports whether a piece must end here.
func (l *Ledger) cutDue(p *piece, now Moment, stepped bool) bool {
	if !p.known {
		return false
	}
	return stepped || p.row.Boot != now.Boot || p.runs() && !p.row.Start.Truncate(time.Hour).Equal(now.Wall.Truncate(time.Hour))
}

// saveDue reports whether a piece's figures must be written. An unknown piece is written once, with
// the last moment at which its subject was known to live: heartbeats of this process say nothing
// about it.
func (l *Ledger) saveDue(p *piece, now Moment) bool {
	if !p.known {
		return p.row.Boot != ""
	}
	return p.runs() && p.counted != nil &&
		(now.Mono-p.saved >= l.opts.Save || p.out+p.in-p.savedBytes >= l.opts.SaveBytes)
}

// renew cuts or saves the pieces of some subjects, in one change. It passes over those that are
// being written at this moment: that write decides.
func (l *Ledger) renew(ctx context.Context, subjects []string, now Moment, stepped bool) error {
	var held []string
	for _, subject := range subjects {
		if l.holdOne(subject) == nil {
			held = append(held, subject)
		}
	}
	defer l.release(held)
	steps := l.renewal(held, now, stepped)
	var c state.Change
	for _, st := range steps {
		c.DropUsage, c.PutUsage = append(c.DropUsage, st.drop...), append(c.PutUsage, st.put...)
	}
	if len(c.DropUsage)+len(c.PutUsage) == 0 {
		return nil
	}
	err := l.opts.Store.Apply(ctx, c)
	l.settle(steps, err)
	return err
}

// renewal computes the steps of renew.
func (l *Ledger) renewal(held []string, now Moment, stepped bool) []step {
	l.mu.Lock()
	defer l.mu.Unlock()
	var steps []step
	for _, subject := range held {
		p, d := l.open[subject], l.doubts[subject]
		st := step{subject: subject, drop: d.drop, put: append([]state.Usage(nil), d.put...), after: p}
		switch {
		case p == nil:
		case l.cutDue(p, now, stepped):
			// A write may have opened the piece after now was read.
			if p.row.Mono > now.Mono {
				continue
			}
			st.after = p.next(bare(p.row), now)
			st.put = append(st.put, l.ending(p, now, state.Change{}), st.after.row)
			st.undo = doubt{[]string{st.after.row.ID}, []state.Usage{p.row}}
		case !p.known && p.row.Boot != "":
			q := *p
			q.row = l.lastKnown(p)
			q.row.End, q.row.Boot, q.row.Counted = time.Time{}, "", p.row.Counted
			st.after, st.put = &q, append(st.put, q.row)
		case p.known:
			q := *p
			q.row = p.at(max(now.Mono, p.row.Mono))
			q.saved, q.savedBytes = now.Mono, p.out+p.in
			st.after, st.put = &q, append(st.put, q.row)
		}
		steps = append(steps, st)
	}
	return steps
}

// day is the UTC day of a time.
func day(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour) }
