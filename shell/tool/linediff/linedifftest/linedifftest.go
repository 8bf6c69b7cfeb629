// Package linedifftest makes random files for tests of code that compares lines. A line is a
// number.
package linedifftest

import (
	"math/rand/v2"
	"slices"
)

// RandomLines returns at most most lines of kinds kinds. With few kinds, many lines are equal.
func RandomLines(r *rand.Rand, most, kinds int) []int32 {
	out := make([]int32, r.IntN(most+1))
	for i := range out {
		out[i] = int32(r.IntN(kinds))
	}
	return out
}

// Edited returns a list with some parts removed, some added and some moved.
func Edited(r *rand.Rand, list []int32, edits, kinds int) []int32 {
	out := slices.Clone(list)
	for range edits {
		from := r.IntN(len(out) + 1)
		to := from + r.IntN(min(len(out)-from, 6)+1)
		switch r.IntN(3) {
		case 0:
			out = slices.Delete(out, from, to)
		case 1:
			out = slices.Insert(out, from, RandomLines(r, 6, kinds)...)
		default:
			block := slices.Clone(out[from:to])
			out = slices.Delete(out, from, to)
			out = slices.Insert(out, r.IntN(len(out)+1), block...)
		}
	}
	return out
}
