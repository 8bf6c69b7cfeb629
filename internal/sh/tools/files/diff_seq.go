package files

import (
	"math"

	"github.com/carrel-dev/carrel/internal/sh/tool"
)

// The comparison of two lists of lines: Myers's algorithm from both ends, with the same short cuts as GNU diff, so that
// the same differences are chosen where there is a choice. Lines that match nothing, or too much, are set aside before
// (discard), and at the end changes are moved to where they read best (shift).

// matcher finds the changed lines of two files, given as numbers of classes of equal lines.
type matcher struct {
	c         *tool.Call
	x, y      []int32 // of what was not set aside
	xi, yi    []int   // where those are
	xc, yc    []bool  // changed, with one more at either end
	fd, bd    []int
	offset    int
	expensive int
	stopped   bool
}

// changes marks what was deleted from a and inserted in b; both results have one false more at either end. classes is
// above all numbers of classes.
func changes(c *tool.Call, a, b []int32, classes int, minimal bool) (del, ins []bool, ok bool) {
	m := &matcher{c: c, xc: make([]bool, len(a)+2), yc: make([]bool, len(b)+2)}
	if c.Pay(int64(len(a)+len(b))*40) != nil {
		return nil, nil, false
	}
	m.discard(a, b, classes, minimal)
	diags := len(m.x) + len(m.y) + 3
	m.fd, m.bd = make([]int, diags), make([]int, diags)
	m.offset = len(m.y) + 1
	m.expensive = 1
	for ; diags != 0; diags >>= 2 {
		m.expensive <<= 1
	}
	m.expensive = max(4096, m.expensive)
	m.compare(len(m.x), len(m.y), minimal)
	if m.stopped {
		return nil, nil, false
	}
	settleRuns(a, m.xc, m.yc)
	settleRuns(b, m.yc, m.xc)
	return m.xc, m.yc, true
}

// discard sets aside the lines that have no match in the other file, and of those that have very many the ones within
// runs of such lines.
func (m *matcher) discard(a, b []int32, classes int, minimal bool) {
	counts := [2][]int32{make([]int32, classes), make([]int32, classes)}
	for _, e := range a {
		counts[0][e]++
	}
	for _, e := range b {
		counts[1][e]++
	}
	for f, lines := range [2][]int32{a, b} {
		other := counts[1-f]
		drop := make([]byte, len(lines))
		many := int32(5)
		for t := len(lines) / 64 >> 2; t > 0; t >>= 2 {
			many *= 2
		}
		for i, e := range lines {
			switch n := other[e]; {
			case n == 0:
				drop[i] = 1
			case n > many:
				drop[i] = 2
			}
		}
		settle(drop)
		changed := m.xc
		if f == 1 {
			changed = m.yc
		}
		for i, e := range lines {
			if !minimal && drop[i] != 0 {
				changed[i+1] = true
				continue
			}
			if f == 0 {
				m.x, m.xi = append(m.x, e), append(m.xi, i)
			} else {
				m.y, m.yi = append(m.y, e), append(m.yi, i)
			}
		}
	}
}

// settle decides about the lines that are set aside only provisionally (2): they are unless they are within a run of
// lines without a match.
func settle(drop []byte) {
	for i := 0; i < len(drop); i++ {
		if drop[i] == 2 {
			drop[i] = 0
			continue
		}
		if drop[i] == 0 {
			continue
		}
		j, provisional := i, 0
		for ; j < len(drop) && drop[j] != 0; j++ {
			if drop[j] == 2 {
				provisional++
			}
		}
		for j > i && drop[j-1] == 2 {
			j--
			drop[j] = 0
			provisional--
		}
		length := j - i
		if provisional*4 > length {
			for j > i {
				if j--; drop[j] == 2 {
					drop[j] = 0
				}
			}
			continue
		}
		run := drop[i : i+length]
		minimum := 1
		for t := length >> 4; t > 0; t >>= 2 {
			minimum <<= 1
		}
		minimum++
		consec := 0
		for j := 0; j < length; j++ {
			if run[j] != 2 {
				consec = 0
				continue
			}
			consec++
			if consec == minimum {
				j -= consec // back to the start of these, to cancel them all
			} else if consec > minimum {
				run[j] = 0
			}
		}
		ends := func(at func(int) int) {
			consec := 0
			for j := range length {
				p := &run[at(j)]
				if j >= 8 && *p == 1 {
					break
				}
				switch *p {
				case 2:
					consec, *p = 0, 0
				case 0:
					consec = 0
				default:
					consec++
				}
				if consec == 3 {
					break
				}
			}
		}
		ends(func(j int) int { return j })
		ends(func(j int) int { return length - 1 - j })
		i += length - 1
	}
}

// area is a rectangle of the comparison that is still to be done.
type area struct {
	x0, x1, y0, y1 int
	minimal        bool
}

// compare divides and conquers, without recursion.
func (m *matcher) compare(nx, ny int, minimal bool) {
	todo := []area{{0, nx, 0, ny, minimal}}
	for len(todo) > 0 {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		start := p.x0
		for p.x0 < p.x1 && p.y0 < p.y1 && m.x[p.x0] == m.y[p.y0] {
			p.x0++
			p.y0++
		}
		for p.x0 < p.x1 && p.y0 < p.y1 && m.x[p.x1-1] == m.y[p.y1-1] {
			p.x1--
			p.y1--
		}
		if !m.c.Step(1 + (p.x0-start)>>4) {
			m.stopped = true
			return
		}
		switch {
		case p.x0 == p.x1:
			for ; p.y0 < p.y1; p.y0++ {
				m.yc[m.yi[p.y0]+1] = true
			}
		case p.y0 == p.y1:
			for ; p.x0 < p.x1; p.x0++ {
				m.xc[m.xi[p.x0]+1] = true
			}
		default:
			x, y, lo, hi := m.middle(p)
			if m.stopped {
				return
			}
			todo = append(todo, area{x, p.x1, y, p.y1, hi}, area{p.x0, x, p.y0, y, lo})
		}
	}
}

// middle finds a point on the way of the fewest edits through a rectangle, or on a good one when that takes too long.
func (m *matcher) middle(p area) (xm, ym int, lo, hi bool) {
	fd, bd, o := m.fd, m.bd, m.offset
	dmin, dmax := p.x0-p.y1, p.x1-p.y0
	fmid, bmid := p.x0-p.y0, p.x1-p.y1
	fmin, fmax, bmin, bmax := fmid, fmid, bmid, bmid
	odd := (fmid-bmid)&1 != 0
	fd[o+fmid], bd[o+bmid] = p.x0, p.x1
	for cost := 1; ; cost++ {
		if !m.c.Step(1 + (fmax-fmin+bmax-bmin)>>4) {
			m.stopped = true
			return 0, 0, false, false
		}
		if fmin > dmin {
			fmin--
			fd[o+fmin-1] = -1
		} else {
			fmin++
		}
		if fmax < dmax {
			fmax++
			fd[o+fmax+1] = -1
		} else {
			fmax--
		}
		for d := fmax; d >= fmin; d -= 2 {
			tlo, thi := fd[o+d-1], fd[o+d+1]
			x := tlo + 1
			if tlo < thi {
				x = thi
			}
			y := x - d
			for x < p.x1 && y < p.y1 && m.x[x] == m.y[y] {
				x++
				y++
			}
			fd[o+d] = x
			if odd && bmin <= d && d <= bmax && bd[o+d] <= x {
				return x, y, true, true
			}
		}
		if bmin > dmin {
			bmin--
			bd[o+bmin-1] = math.MaxInt
		} else {
			bmin++
		}
		if bmax < dmax {
			bmax++
			bd[o+bmax+1] = math.MaxInt
		} else {
			bmax--
		}
		for d := bmax; d >= bmin; d -= 2 {
			tlo, thi := bd[o+d-1], bd[o+d+1]
			x := thi - 1
			if tlo < thi {
				x = tlo
			}
			y := x - d
			for p.x0 < x && p.y0 < y && m.x[x-1] == m.y[y-1] {
				x--
				y--
			}
			bd[o+d] = x
			if !odd && fmin <= d && d <= fmax && x <= fd[o+d] {
				return x, y, true, true
			}
		}
		if !p.minimal && cost >= m.expensive {
			return m.giveUp(p, fmin, fmax, bmin, bmax)
		}
	}
}

// giveUp takes the point that has come furthest.
func (m *matcher) giveUp(p area, fmin, fmax, bmin, bmax int) (xm, ym int, lo, hi bool) {
	fbest, fx := -1, 0
	for d := fmax; d >= fmin; d -= 2 {
		x := min(m.fd[m.offset+d], p.x1)
		y := x - d
		if p.y1 < y {
			x, y = p.y1+d, p.y1
		}
		if fbest < x+y {
			fbest, fx = x+y, x
		}
	}
	bbest, bx := math.MaxInt, 0
	for d := bmax; d >= bmin; d -= 2 {
		x := max(p.x0, m.bd[m.offset+d])
		y := x - d
		if y < p.y0 {
			x, y = p.y0+d, p.y0
		}
		if x+y < bbest {
			bbest, bx = x+y, x
		}
	}
	if p.x1+p.y1-bbest < fbest-(p.x0+p.y0) {
		return fx, fbest - fx, true, false
	}
	return bx, bbest - bx, false, true
}

// settleRuns moves each run of changes as far down as it goes, merging runs, and then up to a change of the other file. The
// slices of changes have one element more at either end.
func settleRuns(lines []int32, changedAll, otherAll []bool) {
	end := len(lines)
	changed := func(i int) *bool { return &changedAll[i+1] }
	other := func(j int) bool { return otherAll[j+1] }
	i, j := 0, 0
	for {
		for i < end && !*changed(i) {
			for other(j) {
				j++
			}
			j++
			i++
		}
		if i == end {
			return
		}
		start := i
		for i++; *changed(i); i++ {
		}
		for other(j) {
			j++
		}
		corresponding := end
		for {
			length := i - start
			for start > 0 && lines[start-1] == lines[i-1] {
				start--
				*changed(start) = true
				i--
				*changed(i) = false
				for start > 0 && *changed(start - 1) {
					start--
				}
				for j--; other(j); j-- {
				}
			}
			corresponding = end
			if other(j - 1) {
				corresponding = i
			}
			for i != end && lines[start] == lines[i] {
				*changed(start) = false
				start++
				*changed(i) = true
				i++
				for *changed(i) {
					i++
				}
				for j++; other(j); j++ {
					corresponding = i
				}
			}
			if length == i-start {
				break
			}
		}
		for corresponding < i {
			start--
			*changed(start) = true
			i--
			*changed(i) = false
			for j--; other(j); j-- {
			}
		}
	}
}
