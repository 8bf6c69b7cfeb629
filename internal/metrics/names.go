package metrics

import (
	"cmp"
	"maps"
	"slices"
)

const (
	// MostNames is how many projects, and how many templates, have series of their own.
	MostNames = 50
	// Other stands for all others. A project or template of this name counts among them.
	Other = "other"
)

// Largest returns a function that gives each name its label. The MostNames names with the greatest
// weights keep their own. The label of every other name is [Other].
func Largest(weights map[string]float64) func(name string) string {
	kept := map[string]bool{}
	names := slices.SortedFunc(maps.Keys(weights), func(a, b string) int {
		return cmp.Or(cmp.Compare(weights[b], weights[a]), cmp.Compare(a, b))
	})
	for _, name := range names[:min(len(names), MostNames)] {
		kept[name] = true
	}
	return func(name string) string {
		if !kept[name] {
			return Other
		}
		return label(name)
	}
}

// Sums adds up numbers that may have the same labels. The zero Sums is not usable; see [NewSums].
type Sums[K comparable] struct{ of map[K]float64 }

// NewSums returns empty sums.
func NewSums[K comparable]() Sums[K] { return Sums[K]{map[K]float64{}} }

// Add adds to a sum.
func (s Sums[K]) Add(k K, n float64) { s.of[k] += n }

// Each calls fn with each sum.
func (s Sums[K]) Each(fn func(k K, sum float64)) {
	for k, n := range s.of {
		fn(k, n)
	}
}
