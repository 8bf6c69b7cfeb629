package front

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/fleet"
)

const (
	// copyEvery is how often a node's usage of the day is copied into the fleet's database.
	copyEvery = 20 * time.Second
	// usageTime bounds the question to one node.
	usageTime = 30 * time.Second
	// maxUsageGroups bounds the groups of an answer, as on one node.
	maxUsageGroups = 10_000
	// usualDays is how far back a question without a beginning goes, as on one node.
	usualDays = 30
)

// copied are the columns that copies have, and the day.
var copied = []string{"project", "key", "template", "tier", "kind"}

// ledgers are the ledgers of all nodes, added up. A node that does not answer counts with the copy of
// its ledger in the fleet's database: a row for each day, project, key, template, tier and kind.
type ledgers struct {
	registry fleet.Registry
	nodes    *nodes
	log      *slog.Logger
}

var _ carrel.Metering = ledgers{}

// Usage implements carrel.Metering.
func (l ledgers) Usage(ctx context.Context, o carrel.UsageOptions) (carrel.UsageReport, error) {
	const op = "read usage"
	now := time.Now().UTC()
	until := o.To
	if until.IsZero() {
		until = now
	}
	if o.From.IsZero() { // the same for all nodes
		y, m, d := until.UTC().Date()
		o.From = time.Date(y, m, d-usualDays, 0, 0, 0, 0, time.UTC)
	}
	ready, _ := l.nodes.ready()
	if len(ready) == 0 {
		return carrel.UsageReport{}, &carrel.Error{Op: op, Kind: carrel.Unavailable, Err: errNoNodes, RetryAfter: time.Second}
	}
	reports, errs := make([]carrel.UsageReport, len(ready)), make([]error, len(ready))
	var wg sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for i, n := range ready {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			reports[i], errs[i] = l.at(ctx, n, o)
		})
	}
	wg.Wait()
	sum := usageSum{rows: map[string]*carrel.UsageRow{}}
	heard := map[string]bool{}
	for i, n := range ready {
		switch kind := carrel.KindOf(errs[i]); {
		case errs[i] == nil:
			heard[string(n.Public)] = true
			if err := sum.add(op, reports[i]); err != nil {
				return carrel.UsageReport{}, err
			}
		case kind == carrel.Invalid, ctx.Err() != nil:
			return carrel.UsageReport{}, errs[i]
		default:
			l.log.Warn("a node does not tell its usage", "node", n.Name, "err", errs[i])
		}
	}
	if len(heard) == 0 {
		return carrel.UsageReport{}, errors.Join(errs...)
	}
	behind, err := l.copies(ctx, op, o, until, heard, &sum)
	if err != nil {
		return carrel.UsageReport{}, err
	}
	return sum.report(o, until, behind), nil
}

// at asks a node.
func (l ledgers) at(ctx context.Context, n fleet.Node, o carrel.UsageOptions) (carrel.UsageReport, error) {
	ctx, cancel := context.WithTimeout(ctx, usageTime)
	defer cancel()
	c, err := l.nodes.client(n.Name, "")
	if err != nil {
		return carrel.UsageReport{}, err
	}
	return c.Usage(ctx, o)
}

// copies adds the copies of ledgers whose nodes did not answer, and says which these are.
func (l ledgers) copies(ctx context.Context, op string, o carrel.UsageOptions, until time.Time, heard map[string]bool,
	sum *usageSum) ([]carrel.UsageBehind, error) {
	all, err := l.registry.UsageCopies(ctx, o.From, until, true)
	if err != nil {
		return nil, err
	}
	last := map[string]carrel.UsageBehind{}
	for _, c := range all {
		if heard[string(c.Public)] {
			continue
		}
		b := last[string(c.Public)]
		if b.Node = c.Node; c.At.After(b.Until) {
			b.Until = c.At.UTC()
		}
		last[string(c.Public)] = b
		if o.Sandbox != "" {
			continue // no copy tells sandboxes apart
		}
		var day carrel.UsageReport
		if err := json.Unmarshal(c.Report, &day); err != nil {
			return nil, &carrel.Error{Op: op, Kind: carrel.Internal, Err: fmt.Errorf("the copy of node %s of %s: %w", c.Node, c.Day.Format(time.DateOnly), err)}
		}
		if err := sum.add(op, part(day, o, c, until)); err != nil {
			return nil, err
		}
	}
	var behind []carrel.UsageBehind
	for _, b := range last {
		behind = append(behind, b)
	}
	slices.SortFunc(behind, func(a, b carrel.UsageBehind) int { return strings.Compare(a.Node, b.Node) })
	return behind, nil
}

// part makes the answer to a question of a copied day. Usage is spread evenly over the day.
func part(day carrel.UsageReport, o carrel.UsageOptions, c fleet.UsageCopy, until time.Time) carrel.UsageReport {
	begins, ends := c.Day, c.Day.AddDate(0, 0, 1)
	if c.At.Before(ends) {
		ends = c.At
	}
	from, to := begins, ends
	if o.From.After(from) {
		from = o.From
	}
	if until.Before(to) {
		to = until
	}
	out := carrel.UsageReport{Currency: day.Currency}
	if !to.After(from) {
		return out
	}
	for _, row := range day.Rows {
		at := func(column string) string {
			if i := slices.Index(day.By, column); i >= 0 && i < len(row.Group) {
				return row.Group[i]
			}
			return ""
		}
		if o.Project != "" && at("project") != o.Project {
			continue
		}
		next := carrel.UsageRow{UsageTotals: scaled(row.UsageTotals, int64(to.Sub(from)), int64(ends.Sub(begins)))}
		for _, column := range o.By {
			value := at(column)
			if column == "day" {
				value = c.Day.Format(time.DateOnly)
			}
			next.Group = append(next.Group, value)
		}
		out.Rows = append(out.Rows, next)
	}
	return out
}

// scaled is a part of usage: n of d.
func scaled(t carrel.UsageTotals, n, d int64) carrel.UsageTotals {
	of := func(x int64) int64 {
		if n >= d {
			return x
		}
		hi, lo := bits.Mul64(uint64(max(x, 0)), uint64(n))
		q, _ := bits.Div64(hi, lo, uint64(d)) // n < d, so it fits
		return int64(q)
	}
	milli, micro := func(m *carrel.Milli) { *m = carrel.Milli(of(int64(*m))) }, func(m *carrel.Micro) { *m = carrel.Micro(of(int64(*m))) }
	for _, m := range []*carrel.Milli{&t.AliveSeconds, &t.MemoryMiBSeconds, &t.MemoryUsedMiBSeconds, &t.DiskUsedMiBSeconds, &t.SnapshotMiBSeconds} {
		milli(m)
	}
	micro(&t.VCPUSeconds)
	micro(&t.CPUSeconds)
	t.BytesOut, t.BytesIn = of(t.BytesOut), of(t.BytesIn)
	if t.Cost != nil {
		cost := *t.Cost
		micro(&cost)
		t.Cost = &cost
	}
	return t
}

// usageSum adds reports up.
type usageSum struct {
	rows     map[string]*carrel.UsageRow
	currency string
}

// add adds a report. Nodes with price lists in two currencies can't be added up.
func (s *usageSum) add(op string, r carrel.UsageReport) error {
	if r.Currency != "" {
		if s.currency != "" && s.currency != r.Currency {
			return &carrel.Error{Op: op, Kind: carrel.Conflict, Field: "currency",
				Err:  fmt.Errorf("some nodes have prices in %s and some in %s", s.currency, r.Currency),
				Hint: "give all nodes the same --price-file"}
		}
		s.currency = r.Currency
	}
	for _, row := range r.Rows {
		key, err := json.Marshal(row.Group)
		if err != nil {
			return &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
		}
		have := s.rows[string(key)]
		if have == nil {
			if len(s.rows) == maxUsageGroups {
				return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "by", Err: fmt.Errorf("the answer has more than %d groups", maxUsageGroups),
					Hint: "ask for a shorter time, one project, or fewer columns"}
			}
			have = &carrel.UsageRow{Group: row.Group}
			s.rows[string(key)] = have
		}
		plus(&have.UsageTotals, row.UsageTotals)
	}
	return nil
}

// plus adds usage with its cost.
func plus(sum *carrel.UsageTotals, more carrel.UsageTotals) {
	sum.Add(more)
	if more.Cost != nil {
		cost := *more.Cost
		if sum.Cost != nil {
			cost += *sum.Cost
		}
		sum.Cost = &cost
	}
}

// report is the answer.
func (s *usageSum) report(o carrel.UsageOptions, until time.Time, behind []carrel.UsageBehind) carrel.UsageReport {
	out := carrel.UsageReport{From: o.From.UTC(), To: until.UTC(), By: append([]string{}, o.By...), Currency: s.currency,
		Rows: []carrel.UsageRow{}, Behind: behind}
	for _, row := range s.rows {
		out.Rows = append(out.Rows, *row)
		plus(&out.Total, row.UsageTotals)
	}
	slices.SortFunc(out.Rows, func(a, b carrel.UsageRow) int { return slices.Compare(a.Group, b.Group) })
	return out
}

// run copies the usage of all nodes into the database, until ctx ends.
func (l ledgers) run(ctx context.Context) {
	tick := time.NewTicker(copyEvery / 4)
	defer tick.Stop()
	for {
		if err := l.copyAll(ctx); err != nil && ctx.Err() == nil {
			l.log.Warn("copy the nodes' usage", "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// copyAll copies what was not copied lately, by this front or another.
func (l ledgers) copyAll(ctx context.Context) error {
	now := time.Now().UTC()
	y, m, d := now.Date()
	today := time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	yesterday := today.AddDate(0, 0, -1)
	known, err := l.registry.UsageCopies(ctx, yesterday, now, false)
	if err != nil {
		return err
	}
	at := func(n fleet.Node, day time.Time) time.Time {
		i := slices.IndexFunc(known, func(c fleet.UsageCopy) bool { return c.Day.Equal(day) && string(c.Public) == string(n.Public) })
		if i < 0 {
			return time.Time{}
		}
		return known[i].At
	}
	ready, _ := l.nodes.ready()
	var errs []error
	for _, n := range ready {
		if now.Sub(at(n, today)) >= copyEvery {
			errs = append(errs, l.copyOne(ctx, n, today))
		}
		// The day is whole when it was copied after its end.
		if at(n, yesterday).Before(today.Add(copyEvery)) && now.After(today.Add(copyEvery)) {
			errs = append(errs, l.copyOne(ctx, n, yesterday))
		}
	}
	return errors.Join(errs...)
}

// copyOne copies one day of one node.
func (l ledgers) copyOne(ctx context.Context, n fleet.Node, day time.Time) error {
	report, err := l.at(ctx, n, carrel.UsageOptions{By: copied, From: day, To: day.AddDate(0, 0, 1)})
	if carrel.KindOf(err) == carrel.Unsupported {
		return nil // it meters nothing
	}
	if err != nil {
		return err
	}
	raw, err := json.Marshal(report)
	if err != nil {
		return err
	}
	return l.registry.PutUsageCopy(ctx, fleet.UsageCopy{Public: n.Public, Node: n.Name, Day: day, Report: raw})
}
