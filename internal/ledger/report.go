package ledger

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

const opUsage = "read usage"

// Bounds of a question.
const (
	maxGroups  = 10_000
	maxColumns = 8
	// usualDays is how far back a question without a beginning goes.
	usualDays = 30
	// maxLabelName bounds the name in a column label:NAME, in bytes.
	maxLabelName = 128
)

// labelColumn begins the name of a column of labels.
const labelColumn = "label:"

// columns are the columns without a parameter, with their values.
var columns = map[string]func(u state.Usage, day time.Time) string{
	"project":  func(u state.Usage, _ time.Time) string { return u.Project },
	"key":      func(u state.Usage, _ time.Time) string { return u.Key },
	"template": func(u state.Usage, _ time.Time) string { return u.Template },
	"tier":     func(u state.Usage, _ time.Time) string { return string(u.Tier) },
	"kind":     func(u state.Usage, _ time.Time) string { return string(u.Kind) },
	"sandbox": func(u state.Usage, _ time.Time) string {
		if u.Kind == carrel.UsageSnapshot {
			return "" // a snapshot may outlive its sandbox
		}
		return u.Subject
	},
	byDay: func(_ state.Usage, day time.Time) string { return day.Format(time.DateOnly) },
}

const byDay = "day"

// question is a checked carrel.UsageOptions.
type question struct {
	carrel.UsageOptions
	value []func(u state.Usage, day time.Time) string
	days  bool
	until time.Time // what the answer says about To
}

// lastTime is after all usage. The store counts nanoseconds, for some time longer.
var lastTime = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// check checks a question.
func check(o carrel.UsageOptions, now time.Time) (question, error) {
	q := question{UsageOptions: o}
	bad := func(field, format string, args ...any) (question, error) {
		return q, &carrel.Error{Op: opUsage, Kind: carrel.Invalid, Field: field, Err: fmt.Errorf(format, args...)}
	}
	if len(o.By) > maxColumns {
		return bad("by", "%d columns, at most %d may be", len(o.By), maxColumns)
	}
	for i, name := range o.By {
		label, isLabel := strings.CutPrefix(name, labelColumn)
		value := columns[name]
		switch {
		case slices.Contains(o.By[:i], name):
			return bad("by", "%.80q is given twice", name)
		case isLabel && (label == "" || len(label) > maxLabelName):
			return bad("by", "%.80q does not name a label of 1 to %d bytes", name, maxLabelName)
		case isLabel:
			value = func(u state.Usage, _ time.Time) string { return u.Labels[label] }
		case value == nil:
			return bad("by", "%.80q is none of project, key, template, tier, kind, sandbox, day and label:NAME", name)
		}
		q.days = q.days || name == byDay
		q.value = append(q.value, value)
	}
	until := q.To
	if q.To.IsZero() {
		// After the wall clock stepped back, some usage lies after now.
		q.To, until = lastTime, now
	}
	if q.To.After(lastTime) {
		q.To, until = lastTime, lastTime
	}
	if q.From.IsZero() {
		q.From = day(until).AddDate(0, 0, -usualDays)
	}
	if first := time.Unix(0, 0); q.From.Before(first) { // nothing is older, and the store counts from here
		q.From = first
	}
	if q.From.After(q.To) {
		return bad("from", "%s is after the end, %s", q.From.UTC().Format(time.RFC3339), q.To.UTC().Format(time.RFC3339))
	}
	q.From, q.To, q.until = q.From.UTC(), q.To.UTC(), until.UTC()
	return q, nil
}

// wants reports whether a piece is asked about.
func (q *question) wants(u state.Usage) bool {
	return u.Kind != state.UsageSeen && (q.Project == "" || u.Project == q.Project) &&
		(q.Sandbox == "" || u.Subject == string(q.Sandbox))
}

// Usage implements carrel.Metering. It checks nobody's rights.
func (l *Ledger) Usage(ctx context.Context, o carrel.UsageOptions) (carrel.UsageReport, error) {
	now := l.opts.Clock()
	q, err := check(o, now.Wall)
	if err != nil {
		return carrel.UsageReport{}, err
	}
	s := summary{question: &q, groups: map[string]*group{}}
	// First those that are open now. Whoever closes one meanwhile is met again below.
	counted := map[string]bool{}
	for _, u := range l.opened(now) {
		counted[u.ID] = true
		if q.wants(u) {
			if err := s.add(u); err != nil {
				return carrel.UsageReport{}, err
			}
		}
	}
	err = l.opts.Store.EachUsage(ctx, q.From, q.To, func(u state.Usage) error {
		if u.Open() || counted[u.ID] || !q.wants(u) {
			return nil
		}
		return s.add(u)
	})
	if err != nil {
		return carrel.UsageReport{}, err
	}
	return s.report(l.opts.Prices), nil
}

// opened returns the open pieces as if they ended now.
func (l *Ledger) opened(now Moment) []state.Usage {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]state.Usage, 0, len(l.open))
	for _, p := range l.open {
		out = append(out, l.ending(p, now, state.Change{}))
	}
	return out
}

// group is the sum of the pieces with the same values.
type group struct {
	values []string
	// A price depends on these two, so they are summed apart.
	sums map[rateKey]*state.Usage
}

// rateKey selects the rates of a piece.
type rateKey struct {
	tier carrel.Tier
	kind carrel.UsageKind
}

// summary collects the answer to a question.
type summary struct {
	*question
	groups map[string]*group
}

// add adds the part of a piece that is asked about.
func (s *summary) add(u state.Usage) (err error) {
	u, ok := clip(u, s.From, s.To)
	if !ok {
		return nil
	}
	if !s.days {
		return s.put(u, time.Time{})
	}
	eachDay(u, func(d time.Time, part state.Usage) {
		if err == nil {
			err = s.put(part, d)
		}
	})
	return err
}

// put adds a piece to its group.
func (s *summary) put(u state.Usage, d time.Time) error {
	values := make([]string, len(s.value))
	var key strings.Builder
	for i, value := range s.value {
		values[i] = value(u, d)
		fmt.Fprintf(&key, "%d:%s", len(values[i]), values[i])
	}
	g := s.groups[key.String()]
	if g == nil {
		if len(s.groups) == maxGroups {
			return &carrel.Error{Op: opUsage, Kind: carrel.Invalid, Field: "by",
				Err:  fmt.Errorf("the answer has more than %d groups", maxGroups),
				Hint: "ask for a shorter time, one project, or fewer columns"}
		}
		g = &group{values: values, sums: map[rateKey]*state.Usage{}}
		s.groups[key.String()] = g
	}
	rate := rateKey{u.Tier, u.Kind}
	if g.sums[rate] == nil {
		g.sums[rate] = &state.Usage{Kind: u.Kind}
	}
	accumulate(g.sums[rate], u)
	return nil
}

// report writes the answer, ordered by the values.
func (s *summary) report(prices *Prices) carrel.UsageReport {
	out := carrel.UsageReport{From: s.From, To: s.until, By: slices.Clone(s.By), Rows: []carrel.UsageRow{}}
	if out.By == nil {
		out.By = []string{}
	}
	all := make([]*group, 0, len(s.groups))
	for _, g := range s.groups {
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b *group) int { return slices.Compare(a.values, b.values) })
	var cost bill
	for _, g := range all {
		row := carrel.UsageRow{Group: g.values}
		var own bill
		for rate, u := range g.sums {
			row.Add(totals(*u))
			own.add(prices, rate, *u)
		}
		cost.addBill(own)
		row.Cost = own.micros(prices)
		out.Total.Add(row.UsageTotals)
		out.Rows = append(out.Rows, row)
	}
	out.Total.Cost = cost.micros(prices)
	if prices != nil {
		out.Currency = prices.Currency
	}
	return out
}

// totals returns a piece's figures in the public form.
func totals(u state.Usage) carrel.UsageTotals {
	t := carrel.UsageTotals{
		VCPUSeconds: carrel.Micro(u.CPUAlive), MemoryMiBSeconds: carrel.Milli(u.MemAlive),
		CPUSeconds: carrel.Micro(u.CPUMicros), MemoryUsedMiBSeconds: carrel.Milli(u.MemUsed),
		DiskUsedMiBSeconds: carrel.Milli(u.DiskUsed), BytesOut: u.BytesOut, BytesIn: u.BytesIn,
		SnapshotMiBSeconds: carrel.Milli(u.BytesAlive),
	}
	if u.Kind != carrel.UsageSnapshot { // a snapshot does not run
		t.AliveSeconds = carrel.Milli(u.AliveMS)
	}
	return t
}
