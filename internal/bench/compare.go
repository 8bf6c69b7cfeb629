package bench

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
)

// change is the change of a row's median since an earlier run.
type change struct {
	old, now  row
	ratio     float64 // now ÷ old
	low, high float64 // the range of 95 % of the draws; NaN if unknown
	verdict   string
}

// least is the smallest change that is reported. Two runs of the same program on the same quiet
// machine differ by that much.
const least = 0.05

// printChanges writes what changed since an earlier run, as Markdown.
func printChanges(w io.Writer, old, now *results) {
	fmt.Fprintf(w, "\nthen: %s\nnow:  %s\n", old.Machine, now.Machine)
	if old.Machine.CPU != now.Machine.CPU || old.Machine.Cores != now.Machine.Cores {
		fmt.Fprintln(w, "These are different machines: compare the rows in × only.")
	}
	fmt.Fprintf(w, "\n| what | then | now | unit | now ÷ then | of the draws 95 %% | |\n|---|---|---|---|---|---|---|\n")
	for _, c := range changes(old, now) {
		between := ""
		if !math.IsNaN(c.low) {
			between = fmt.Sprintf("%.2f–%.2f", c.low, c.high)
		}
		fmt.Fprintf(w, "| %s | %.4g | %.4g | %s | %.2f | %s | %s |\n", c.now.Name, c.old.Median, c.now.Median, c.now.Unit, c.ratio, between, c.verdict)
	}
}

// changes returns the changes of all rows that both runs have. A row is identified by its key.
// Without a key, it is identified by its measurement and name, and by the number of equal rows
// before it.
func changes(old, now *results) []change {
	byName := named(old.Rows)
	var list []change
	seen := map[string]int{}
	for _, r := range now.Rows {
		before, ok := byName[rowName(r, seen)]
		if !ok || before.Unit != r.Unit || before.Median == 0 {
			continue
		}
		c := change{old: before, now: r, ratio: r.Median / before.Median}
		c.low, c.high = bootstrap(before.Values, r.Values)
		c.verdict = c.judge()
		list = append(list, c)
	}
	return list
}

func named(rows []row) map[string]row {
	m, seen := map[string]row{}, map[string]int{}
	for _, r := range rows {
		m[rowName(r, seen)] = r
	}
	return m
}

func rowName(r row, seen map[string]int) string {
	if r.Key != "" {
		return r.Key
	}
	name := r.Bench + ": " + r.Name
	seen[name]++
	return fmt.Sprintf("%s #%d", name, seen[name])
}

// judge returns better or worse if the change is larger than chance explains for this many samples.
func (c change) judge() string {
	switch {
	case math.IsNaN(c.low):
		return "one sample"
	case c.low <= 1 && c.high >= 1, math.Abs(c.ratio-1) < least:
		return ""
	case (c.ratio > 1) == c.now.More:
		return "better"
	}
	return "worse"
}

// bootstrap draws from both sets of samples with replacement, many times. It returns the range of
// 95 % of the ratios of the medians. The draws are the same each time.
func bootstrap(old, now []float64) (low, high float64) {
	if len(old) < 5 || len(now) < 5 {
		return math.NaN(), math.NaN()
	}
	random := rand.New(rand.NewPCG(7, 7))
	drawn := func(from []float64) float64 {
		s := make([]float64, len(from))
		for i := range s {
			s[i] = from[random.IntN(len(from))]
		}
		return median(s)
	}
	const draws = 1000
	ratios := make([]float64, draws)
	for i := range ratios {
		ratios[i] = drawn(now) / drawn(old)
	}
	slices.Sort(ratios)
	return ratios[draws*25/1000], ratios[draws*975/1000]
}
