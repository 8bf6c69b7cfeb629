package git

import (
	"bytes"
	"cmp"

	"github.com/carrel-dev/carrel/internal/sh/tool"
)

// edit is one run of lines that differ: old[a1:a2] became new[b1:b2].
type edit struct{ a1, a2, b1, b2 int }

// splitLines cuts a text into lines with their ends.
func splitLines(b []byte) [][]byte {
	var out [][]byte
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n') + 1
		if i == 0 {
			i = len(b)
		}
		out = append(out, b[:i])
		b = b[i:]
	}
	return out
}

// isBinary is git's guess: a zero byte near the beginning.
func isBinary(b []byte) bool { return bytes.IndexByte(b[:min(len(b), 8000)], 0) >= 0 }

// compare finds the differences of two texts, as Myers does, with the runs moved to where git shows them.
func (g *git) compare(old, new [][]byte) ([]edit, error) {
	ids := map[string]int{}
	number := func(lines [][]byte) []int {
		out := make([]int, len(lines))
		for i, l := range lines {
			id, ok := ids[string(l)]
			if !ok {
				id = len(ids)
				ids[string(l)] = id
			}
			out[i] = id
		}
		return out
	}
	a, b := number(old), number(new)
	if !g.Step(10 + len(a) + len(b)) {
		return nil, tool.ErrStop
	}
	gone, came := make([]bool, len(a)+1), make([]bool, len(b)+1)
	// Lines that the other side doesn't have at all need no comparison.
	where := make([]uint8, len(ids))
	for _, id := range a {
		where[id] |= 1
	}
	for _, id := range b {
		where[id] |= 2
	}
	shared := func(all []int, marks []bool) (ids, at []int) {
		for i, id := range all {
			if marks[i] = where[id] != 3; !marks[i] {
				ids, at = append(ids, id), append(at, i)
			}
		}
		return ids, at
	}
	sa, ia := shared(a, gone)
	sb, ib := shared(b, came)
	d := &differ{g: g, a: sa, b: sb, gone: make([]bool, len(sa)), came: make([]bool, len(sb))}
	d.run(0, len(sa), 0, len(sb), 0)
	if d.stop {
		return nil, tool.ErrStop
	}
	for i, yes := range d.gone {
		gone[ia[i]] = yes
	}
	for i, yes := range d.came {
		came[ib[i]] = yes
	}
	var out []edit
	for i, j := 0, 0; i < len(a) || j < len(b); {
		if !gone[i] && !came[j] {
			i++
			j++
			continue
		}
		e := edit{a1: i, b1: j}
		for i < len(a) && gone[i] {
			i++
		}
		for j < len(b) && came[j] {
			j++
		}
		e.a2, e.b2 = i, j
		out = append(out, e)
	}
	return slide(out, old, new, a, b), nil
}

// differ marks the lines that differ.
type differ struct {
	g          *git
	a, b       []int
	gone, came []bool
	stop       bool
}

// run compares a range with a range in linear space.
func (d *differ) run(a1, a2, b1, b2, depth int) {
	for a1 < a2 && b1 < b2 && d.a[a1] == d.b[b1] {
		a1++
		b1++
	}
	for a1 < a2 && b1 < b2 && d.a[a2-1] == d.b[b2-1] {
		a2--
		b2--
	}
	switch {
	case d.stop:
	case a1 == a2 || b1 == b2 || depth > 64:
		for i := a1; i < a2; i++ {
			d.gone[i] = true
		}
		for j := b1; j < b2; j++ {
			d.came[j] = true
		}
	default:
		i, j := d.middle(a1, a2, b1, b2)
		if i < 0 {
			for i := a1; i < a2; i++ {
				d.gone[i] = true
			}
			for j := b1; j < b2; j++ {
				d.came[j] = true
			}
			return
		}
		d.run(a1, i, b1, j, depth+1)
		d.run(i, a2, j, b2, depth+1)
	}
}

const maxCost = 20_000 // steps of the search from both ends

// middle finds a point on a shortest way.
func (d *differ) middle(a1, a2, b1, b2 int) (int, int) {
	n, m := a2-a1, b2-b1
	limit := min((n+m+1)/2, maxCost)
	size := 2*limit + 3
	fw, bw := make([]int, size), make([]int, size)
	off := limit + 1
	delta := n - m
	for k := range fw {
		fw[k], bw[k] = -1, -1
	}
	fw[off+1], bw[off+1] = 0, 0
	at := func(v []int, k int) int {
		if k+off < 0 || k+off >= size {
			return -1
		}
		return v[k+off]
	}
	for cost := 0; cost <= limit; cost++ {
		if !d.g.Step(1 + cost/4) {
			d.stop = true
			return -1, -1
		}
		for k := -cost; k <= cost; k += 2 {
			x := at(fw, k-1) + 1
			if k == -cost || k != cost && at(fw, k-1) < at(fw, k+1) {
				x = at(fw, k+1)
			}
			for x < n && x-k < m && x-k >= 0 && d.a[a1+x] == d.b[b1+x-k] {
				x++
			}
			fw[k+off] = x
			if delta&1 != 0 {
				if r := delta - k; r >= -(cost-1) && r <= cost-1 && at(bw, r) >= 0 && x+at(bw, r) >= n && x <= n && x-k <= m && x-k >= 0 {
					return a1 + x, b1 + x - k
				}
			}
		}
		for k := -cost; k <= cost; k += 2 {
			x := at(bw, k-1) + 1
			if k == -cost || k != cost && at(bw, k-1) < at(bw, k+1) {
				x = at(bw, k+1)
			}
			for x < n && x-k < m && x-k >= 0 && d.a[a2-1-x] == d.b[b2-1-(x-k)] {
				x++
			}
			bw[k+off] = x
			if delta&1 == 0 {
				if f := delta - k; f >= -cost && f <= cost && at(fw, f) >= 0 && x+at(fw, f) >= n && x <= n && x-k <= m && x-k >= 0 {
					return a2 - x, b2 - (x - k)
				}
			}
		}
	}
	return -1, -1
}

// slide moves runs of lines that only came, or only went, up and down as far as they go, joins runs that meet, and leaves
// each where it reads best by indentation, as git does.
func slide(edits []edit, old, new [][]byte, a, b []int) []edit {
	var out []edit
	for k := 0; k < len(edits); k++ {
		e := edits[k]
		for {
			ids, lines, from, to := b, new, &e.b1, &e.b2
			if e.b1 == e.b2 {
				ids, lines, from, to = a, old, &e.a1, &e.a2
			} else if e.a1 != e.a2 {
				break // lines of both sides hold each other
			}
			floorA, floorB := 0, 0
			if len(out) > 0 {
				floorA, floorB = out[len(out)-1].a2, out[len(out)-1].b2
			}
			ceilA, ceilB := len(a), len(b)
			if k+1 < len(edits) {
				ceilA, ceilB = edits[k+1].a1, edits[k+1].b1
			}
			for e.a1 > floorA && e.b1 > floorB && ids[*from-1] == ids[*to-1] {
				e = edit{e.a1 - 1, e.a2 - 1, e.b1 - 1, e.b2 - 1}
			}
			if len(out) > 0 && e.a1 == floorA && e.b1 == floorB {
				last := out[len(out)-1]
				out = out[:len(out)-1]
				e.a1, e.b1 = last.a1, last.b1
				continue
			}
			top := *to
			for e.a2 < ceilA && e.b2 < ceilB && ids[*from] == ids[*to] {
				e = edit{e.a1 + 1, e.a2 + 1, e.b1 + 1, e.b2 + 1}
			}
			if k+1 < len(edits) && e.a2 == ceilA && e.b2 == ceilB {
				e.a2, e.b2 = edits[k+1].a2, edits[k+1].b2
				k++
				continue
			}
			if *to > top {
				back := *to - bestEnd(lines, *from, *to, top)
				e = edit{e.a1 - back, e.a2 - back, e.b1 - back, e.b2 - back}
			}
			break
		}
		out = append(out, e)
	}
	return out
}

// splitScore is how bad it is to cut before a line: less is better. The weights are git's.
type splitScore struct{ indent, penalty int }

// bestEnd chooses where a run of lines that can be moved ends, by git's heuristic on indentation.
func bestEnd(lines [][]byte, start, end, top int) int {
	size := end - start
	from := max(top, end-size-1, end-100)
	best := -1
	var score splitScore
	for e := from; e <= end; e++ {
		var s splitScore
		s.add(lines, e)
		s.add(lines, e-size)
		if best < 0 || s.worse(score) <= 0 {
			best, score = e, s
		}
	}
	return best
}

func (s splitScore) worse(t splitScore) int {
	return 60*cmp.Compare(s.indent, t.indent) + s.penalty - t.penalty
}

// indentOf is how far a line is indented, -1 for one that is blank or isn't there.
func indentOf(lines [][]byte, i int) int {
	if i < 0 || i >= len(lines) {
		return -1
	}
	n := 0
	for _, c := range lines[i] {
		switch c {
		case ' ':
			n++
		case '\t':
			n += 8 - n%8
		case '\n', '\r', '\f', '\v':
		default:
			return min(n, 200)
		}
	}
	return -1
}

// add counts the cut before a line.
func (s *splitScore) add(lines [][]byte, at int) {
	indent := indentOf(lines, at)
	preBlank, pre := 0, -1
	for i := at - 1; i >= 0; i-- {
		if pre = indentOf(lines, i); pre >= 0 {
			break
		}
		if preBlank++; preBlank == 20 {
			pre = 0
			break
		}
	}
	postBlank, post := 0, -1
	for i := at + 1; i < len(lines); i++ {
		if post = indentOf(lines, i); post >= 0 {
			break
		}
		if postBlank++; postBlank == 20 {
			post = 0
			break
		}
	}
	if pre < 0 && preBlank == 0 {
		s.penalty++
	}
	if at >= len(lines) {
		s.penalty += 21
	}
	after := 0
	if indent < 0 {
		after = 1 + postBlank
	}
	total := preBlank + after
	s.penalty += -30*total + 6*after
	blanks := total != 0
	if indent < 0 {
		indent = post
	}
	s.indent += indent
	pick := func(with, without int) {
		if blanks {
			s.penalty += with
		} else {
			s.penalty += without
		}
	}
	switch {
	case indent < 0, pre < 0, indent == pre:
	case indent > pre:
		pick(10, -4)
	case post > indent:
		pick(17, 24)
	default:
		pick(17, 23)
	}
}
