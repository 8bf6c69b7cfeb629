package bench

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// row is one line of the table.
type row struct {
	// Key identifies the figure and stays the same between versions. It is empty if only people
	// read it.
	Key     string  `json:"key,omitempty"`
	Bench   string  `json:"bench,omitempty"` // the measurement that it is of
	Name    string  `json:"name"`
	Unit    string  `json:"unit"`
	Samples int     `json:"samples"`
	Median  float64 `json:"median"`
	P95     float64 `json:"p95"`
	P99     float64 `json:"p99"`
	Target  string  `json:"target,omitempty"`
	Met     bool    `json:"met"`
	// More means that more is better.
	More bool `json:"more,omitempty"`
	// Values are the samples, thinned out if there are many. With them a later run can distinguish
	// a change from noise.
	Values []float64 `json:"values,omitempty"`
}

// mostValues is how many samples of a row are stored in the file.
const mostValues = 400

// summarise makes a row without a target.
func summarise(name, unit string, samples []float64) row {
	r := row{Name: name, Unit: unit, Samples: len(samples)}
	if len(samples) == 0 {
		return r
	}
	s := slices.Sorted(slices.Values(samples))
	r.Median, r.P95, r.P99 = s[len(s)/2], percentile(s, 95), percentile(s, 99)
	step := (len(samples) + mostValues - 1) / mostValues
	for i := 0; i < len(samples); i += step {
		r.Values = append(r.Values, math.Round(samples[i]*1000)/1000)
	}
	return r
}

// percentile returns the p-th percentile of sorted samples.
func percentile(sorted []float64, p int) float64 {
	return sorted[min(len(sorted)-1, len(sorted)*p/100)]
}

// fewer makes a row whose target is a median of at most limit.
func fewer(name, unit string, samples []float64, limit float64) row {
	return atMost(summarise(name, unit, samples), limit)
}

// more makes a row whose target is a median of at least limit. Its bad end is the low end.
func more(name, unit string, samples []float64, limit float64) row {
	return atLeast(summarise(name, unit, samples).rate(), limit)
}

// rate marks a row whose higher values are better.
func (r row) rate() row {
	s := slices.Sorted(slices.Values(r.Values))
	if r.More = true; len(s) > 0 {
		r.P95, r.P99 = s[len(s)*5/100], s[len(s)/100]
	}
	return r
}

// key sets a row's key for targets and comparisons.
func (r row) key(key string) row {
	r.Key = key
	return r
}

func atMost(r row, limit float64) row {
	r.Target, r.Met = fmt.Sprintf("≤ %g", limit), r.Median <= limit
	return r
}

func atLeast(r row, limit float64) row {
	r.Target, r.Met, r.More = fmt.Sprintf("≥ %g", limit), r.Median >= limit, true
	return r
}

// ratio is that of two medians.
func ratio(name string, a, b []float64) row {
	x := median(a) / median(b)
	return row{Name: name, Unit: "×", Samples: min(len(a), len(b)), Median: x, P95: x, P99: x, Met: true}
}

// single makes a row of one figure.
func single(name, unit string, value float64) row { return summarise(name, unit, []float64{value}) }

// median returns the median of samples; NaN for none.
func median(samples []float64) float64 {
	if len(samples) == 0 {
		return math.NaN()
	}
	return slices.Sorted(slices.Values(samples))[len(samples)/2]
}

// p95 of samples; NaN of none.
func p95(samples []float64) float64 { return tail(samples, 95) }

// tail returns a percentile of samples in any order; NaN for none.
func tail(samples []float64, p int) float64 {
	if len(samples) == 0 {
		return math.NaN()
	}
	return percentile(slices.Sorted(slices.Values(samples)), p)
}

// point is one figure at a count of something. The plots are drawn from points.
type point struct {
	Series string  `json:"series"`
	X      float64 `json:"x"`
	Y      float64 `json:"y"`
}

// ms returns a duration in milliseconds.
func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
