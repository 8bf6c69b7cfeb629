package overlay

import (
	"sort"
	"strings"

	"github.com/aymanbagabas/go-udiff/lcs"
)

// splitLines cuts text after each newline.
func splitLines(text []byte) []string {
	if len(text) == 0 {
		return nil
	}
	lines := strings.SplitAfter(string(text), "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// edit says that a[aFrom:aTo] became b[bFrom:bTo].
type edit struct{ aFrom, aTo, bFrom, bTo int }

// compareLines finds the changed lines. It first pairs lines that occur exactly once in both texts
// (the longest series of them that is in order). Then it compares the gaps between them thoroughly.
// So the time is bounded for any input, and the result is small for usual ones.
func compareLines(a, b []string) []edit {
	var edits []edit
	add := func(e edit) {
		if n := len(edits); n > 0 && edits[n-1].aTo == e.aFrom && edits[n-1].bTo == e.bFrom {
			edits[n-1].aTo, edits[n-1].bTo = e.aTo, e.bTo
			return
		}
		edits = append(edits, e)
	}
	i, j := 0, 0
	for _, p := range append(anchors(a, b), [2]int{len(a), len(b)}) {
		if p[0] < i || p[1] < j {
			continue
		}
		switch {
		case i == p[0] && j == p[1]:
		case i == p[0] || j == p[1]:
			add(edit{i, p[0], j, p[1]})
		default:
			for _, d := range lcs.DiffLines(a[i:p[0]], b[j:p[1]]) {
				add(edit{i + d.Start, i + d.End, j + d.ReplStart, j + d.ReplEnd})
			}
		}
		i, j = p[0]+1, p[1]+1
	}
	return edits
}

// anchors returns pairs of indexes of lines that occur exactly once in a and in b: the longest
// series that increases in both (Szymanski's method, as in patience diff).
func anchors(a, b []string) [][2]int {
	type seen struct{ na, nb, at int }
	lines := make(map[string]*seen, len(a))
	for i, l := range a {
		if s := lines[l]; s != nil {
			s.na++
		} else {
			lines[l] = &seen{na: 1, at: i}
		}
	}
	for _, l := range b {
		if s := lines[l]; s != nil {
			s.nb++
		}
	}
	var pairs [][2]int
	for j, l := range b {
		if s := lines[l]; s != nil && s.na == 1 && s.nb == 1 {
			pairs = append(pairs, [2]int{s.at, j})
		}
	}
	var tails []int // tails[k] ends the best series of length k+1
	before := make([]int, len(pairs))
	for n, p := range pairs {
		k := sort.Search(len(tails), func(k int) bool { return pairs[tails[k]][0] >= p[0] })
		before[n] = -1
		if k > 0 {
			before[n] = tails[k-1]
		}
		if k == len(tails) {
			tails = append(tails, n)
		} else {
			tails[k] = n
		}
	}
	out := make([][2]int, len(tails))
	if len(tails) > 0 {
		n := tails[len(tails)-1]
		for k := len(tails) - 1; k >= 0; k-- {
			out[k], n = pairs[n], before[n]
		}
	}
	return out
}
