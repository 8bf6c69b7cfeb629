package ledger

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/carrel-dev/carrel/internal/state"
)

const (
	// foldBack is how far back Fold looks for pieces. Older ones were folded earlier.
	foldBack = 40 * 24 * time.Hour
	// mergeAtOnce bounds the rows that one transaction merges.
	mergeAtOnce = 500
)

// Fold makes one piece of all pieces of a sandbox in a day that is older than Options.FoldAfter. It
// makes one piece of all equal sandboxes in a day that is older than Options.MergeAfter: from then on
// nobody can ask for one of these sandboxes. The sums over whole days stay the same.
func (l *Ledger) Fold(ctx context.Context, now time.Time) error {
	before := day(now.Add(-l.opts.FoldAfter))
	groups := map[string][]state.Usage{}
	err := l.old(ctx, before, func(u state.Usage) {
		k := identity(bare(u))
		groups[k] = append(groups[k], u)
	})
	if err != nil {
		return err
	}
	for k, rows := range groups {
		if err := l.foldOne(ctx, k, rows); err != nil {
			return err
		}
	}
	return l.merge(ctx, day(now.Add(-l.opts.MergeAfter)))
}

// old calls fn for the pieces that ended before a time.
func (l *Ledger) old(ctx context.Context, before time.Time, fn func(state.Usage)) error {
	return l.opts.Store.EachUsage(ctx, before.Add(-foldBack), before, func(u state.Usage) error {
		if u.Kind != state.UsageSeen && !u.Open() && !u.End.After(before) {
			fn(u)
		}
		return nil
	})
}

// identity is a short text that differs for pieces of different owners or sizes.
func identity(u state.Usage) string {
	text, _ := json.Marshal(u) // always works: texts and whole numbers
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:12])
}

// foldOne folds all pieces of one sandbox.
func (l *Ledger) foldOne(ctx context.Context, key string, rows []state.Usage) error {
	fine := false
	for _, u := range rows {
		fine = fine || u.Pieces == 0
	}
	if !fine {
		return nil
	}
	days := map[string]*state.Usage{}
	var c state.Change
	for _, u := range rows {
		eachDay(u, func(d time.Time, part state.Usage) {
			part.ID = "d." + d.Format("060102") + "." + key
			sum(days, part)
		})
		if days[u.ID] == nil {
			c.DropUsage = append(c.DropUsage, u.ID)
		}
	}
	for _, u := range days {
		c.PutUsage = append(c.PutUsage, *u)
	}
	return l.opts.Store.Apply(ctx, c)
}

// sum adds a piece to the one with the same ID.
func sum(all map[string]*state.Usage, u state.Usage) {
	u.Pieces = max(u.Pieces, 1)
	have := all[u.ID]
	if have == nil {
		u.Boot, u.Mono, u.Counted = "", 0, nil
		all[u.ID] = &u
		return
	}
	accumulate(have, u)
	have.Pieces += u.Pieces
	if u.Start.Before(have.Start) {
		have.Start = u.Start
	}
	if u.End.After(have.End) {
		have.End = u.End
	}
}

// merge folds days of equal sandboxes.
func (l *Ledger) merge(ctx context.Context, before time.Time) error {
	groups := map[string][]state.Usage{}
	err := l.old(ctx, before, func(u state.Usage) {
		if u.Pieces == 0 { // it was not folded yet
			return
		}
		what := bare(u)
		what.Subject = ""
		k := "m." + day(u.Start).Format("060102") + "." + identity(what)
		groups[k] = append(groups[k], u)
	})
	if err != nil {
		return err
	}
	for id, rows := range groups {
		if err := l.mergeOne(ctx, id, rows); err != nil {
			return err
		}
	}
	return nil
}

// mergeOne merges rows into the one with an ID, which may be among them.
func (l *Ledger) mergeOne(ctx context.Context, id string, rows []state.Usage) error {
	all := map[string]*state.Usage{}
	var fresh []state.Usage
	for _, u := range rows {
		if u.ID == id {
			sum(all, u)
		} else {
			fresh = append(fresh, u)
		}
	}
	for len(fresh) > 0 {
		var c state.Change
		n := min(mergeAtOnce, len(fresh))
		for _, u := range fresh[:n] {
			c.DropUsage = append(c.DropUsage, u.ID)
			u.ID, u.Subject = id, ""
			sum(all, u)
		}
		c.PutUsage = []state.Usage{*all[id]}
		if err := l.opts.Store.Apply(ctx, c); err != nil {
			return err
		}
		fresh = fresh[n:]
	}
	return nil
}
