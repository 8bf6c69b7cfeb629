package linediff

import "math"

// Limits of the work. The unit is one point of the search: the furthest point on a diagonal.
const (
	// workForAll is the work that a comparison of two files may take before it cuts searches short.
	workForAll = 128 << 20
	// workForBox is the work that each box may take in any case: enough for 256 differences.
	workForBox = 64 << 10
)

// comparison is the state of comparing two sequences.
type comparison struct {
	step           func(n int) bool
	a, b           []int32
	removed, added []bool // the result

	// forward and backward hold, for each diagonal x-y, the furthest x reached from the beginning
	// and from the end of a box. Index 0 is diagonal -len(b)-1.
	forward, backward []int
	work              int
	minimal           bool // never hurry
	stopped           bool // the process is being ended
}

const (
	neverForward  = math.MinInt / 2
	neverBackward = math.MaxInt / 2
)

// unmatched returns the elements of a and b that have no partner in a longest common subsequence.
// The elements are numbers below classes. ok is false when step returned false.
func unmatched(step func(n int) bool, a, b []int32, classes int, minimal bool) (removed, added []bool, ok bool) {
	removed, added = make([]bool, len(a)), make([]bool, len(b))
	c := &comparison{step: step, minimal: minimal}
	var placesA, placesB []int
	c.a, placesA = shared(a, b, removed, classes)
	c.b, placesB = shared(b, a, added, classes)
	c.removed, c.added = make([]bool, len(c.a)), make([]bool, len(c.b))
	c.forward = make([]int, len(c.a)+len(c.b)+3)
	c.backward = make([]int, len(c.a)+len(c.b)+3)
	c.compare(area{0, len(c.a), 0, len(c.b)})
	for i, at := range placesA {
		removed[at] = c.removed[i]
	}
	for i, at := range placesB {
		added[at] = c.added[i]
	}
	return removed, added, !c.stopped
}

// shared returns the elements of list that are also in the other list, with their positions. It
// marks all others: they can't match, and the search is smaller without them.
func shared(list, other []int32, marks []bool, classes int) (kept []int32, places []int) {
	has := make([]bool, classes)
	for _, e := range other {
		has[e] = true
	}
	for i, e := range list {
		if marks[i] = !has[e]; has[e] {
			kept, places = append(kept, e), append(places, i)
		}
	}
	return kept, places
}

// area is a part of a, from x0 up to x1, against a part of b, from y0 up to y1.
type area struct{ x0, x1, y0, y1 int }

// size returns the number of elements of a box.
func (p area) size() int { return p.x1 - p.x0 + p.y1 - p.y0 }

// compare marks the unmatched elements in a box. It recurses only into the smaller part, so that
// the depth of recursion is logarithmic.
func (c *comparison) compare(p area) {
	for !c.stopped {
		p = c.trim(p)
		if p.x0 == p.x1 || p.y0 == p.y1 {
			for i := p.x0; i < p.x1; i++ {
				c.removed[i] = true
			}
			for i := p.y0; i < p.y1; i++ {
				c.added[i] = true
			}
			return
		}
		x, y := c.split(p)
		if c.stopped {
			return
		}
		before, after := area{p.x0, x, p.y0, y}, area{x, p.x1, y, p.y1}
		if before.size() < after.size() {
			c.compare(before)
			p = after
		} else {
			c.compare(after)
			p = before
		}
	}
}

// trim removes equal elements from both ends of a box.
func (c *comparison) trim(p area) area {
	size := p.size()
	for p.x0 < p.x1 && p.y0 < p.y1 && c.a[p.x0] == c.b[p.y0] {
		p.x0, p.y0 = p.x0+1, p.y0+1
	}
	for p.x0 < p.x1 && p.y0 < p.y1 && c.a[p.x1-1] == c.b[p.y1-1] {
		p.x1, p.y1 = p.x1-1, p.y1-1
	}
	c.spend(size - p.size())
	return p
}

// spend pays for work.
func (c *comparison) spend(n int) {
	if !c.step(1 + n) {
		c.stopped = true
	}
}

// search looks for the point at which a box is split.
type search struct {
	*comparison
	area
	low, high int // the diagonals of the box
	zero      int // the index of diagonal 0
}

// split returns a point inside a box that lies on a shortest script and is not a corner. The box
// has no equal ends and no empty side. If the search costs too much, split returns the furthest
// point that it has reached.
func (c *comparison) split(p area) (x, y int) {
	s := search{comparison: c, area: p, low: p.x0 - p.y1, high: p.x1 - p.y0, zero: len(c.b) + 1}
	begin, end := p.x0-p.y0, p.x1-p.y1
	odd := (begin-end)%2 != 0
	s.forward[s.zero+begin], s.backward[s.zero+end] = p.x0, p.x1
	s.border(s.forward, begin, 0, neverForward)
	s.border(s.backward, end, 0, neverBackward)
	allowance := c.work + max((workForAll-c.work)/4, workForBox)
	for d := 1; ; d++ {
		before := c.work
		s.border(s.forward, begin, d, neverForward)
		s.border(s.backward, end, d, neverBackward)
		if k, met := s.advance(begin, d, odd, end); met {
			return s.forward[s.zero+k], s.forward[s.zero+k] - k
		}
		if k, met := s.retreat(end, d, !odd, begin); met {
			return s.backward[s.zero+k], s.backward[s.zero+k] - k
		}
		if c.spend(c.work - before); c.stopped {
			return 0, 0
		}
		if c.work > allowance && !c.minimal {
			return s.furthest(begin, end, d)
		}
	}
}

// border marks the diagonals next to those that d steps reach as not reached.
func (s *search) border(reached []int, from, d, never int) {
	if k := from - d - 1; k >= s.low-1 {
		reached[s.zero+k] = never
	}
	if k := from + d + 1; k <= s.high+1 {
		reached[s.zero+k] = never
	}
}

// diagonals returns the first and the last of the diagonals that d steps reach. Every second one
// between them is reached.
func (s *search) diagonals(from, d int) (first, last int) {
	first, last = from-d, from+d
	if first < s.low {
		first = s.low + (s.low-first)%2
	}
	if last > s.high {
		last = s.high - (last-s.high)%2
	}
	return first, last
}

// reaches reports whether fewer than d+1 steps from a corner reach diagonal k.
func reaches(from, d, k int) bool { return k >= from-d && k <= from+d && (k-from-d)%2 == 0 }

// advance takes the d-th step from the beginning on all diagonals. If meet is set, it looks for a
// diagonal on which the search from the end, after d-1 steps, has come as far.
func (s *search) advance(begin, d int, meet bool, end int) (diagonal int, met bool) {
	first, last := s.diagonals(begin, d)
	for k := last; k >= first; k -= 2 {
		at := s.zero + k
		x := s.forward[at+1] // an element of b is added
		if x-k > s.y1 {
			x = neverForward
		}
		if right := s.forward[at-1] + 1; right > x && right <= s.x1 { // one of a is removed
			x = right
		}
		if reaches(begin, d-2, k) {
			x = max(x, s.forward[at])
		}
		s.work++
		for x >= s.x0 && x < s.x1 && x-k < s.y1 && s.a[x] == s.b[x-k] {
			x++
			s.work++
		}
		if s.forward[at] = x; meet && reaches(end, d-1, k) && x >= s.backward[at] {
			return k, true
		}
	}
	return 0, false
}

// retreat takes the d-th step from the end on all diagonals. If meet is set, it looks for a
// diagonal on which the search from the beginning, after d steps, has come as far.
func (s *search) retreat(end, d int, meet bool, begin int) (diagonal int, met bool) {
	first, last := s.diagonals(end, d)
	for k := first; k <= last; k += 2 {
		at := s.zero + k
		x := s.backward[at-1] // an element of b is added
		if x-k < s.y0 {
			x = neverBackward
		}
		if left := s.backward[at+1] - 1; left < x && left >= s.x0 { // one of a is removed
			x = left
		}
		if reaches(end, d-2, k) {
			x = min(x, s.backward[at])
		}
		s.work++
		for x > s.x0 && x <= s.x1 && x-k > s.y0 && s.a[x-1] == s.b[x-k-1] {
			x--
			s.work++
		}
		if s.backward[at] = x; meet && reaches(begin, d, k) && x <= s.forward[at] {
			return k, true
		}
	}
	return 0, false
}

// furthest returns the point reached by d steps from either corner that has the most elements
// behind it.
func (s *search) furthest(begin, end, d int) (x, y int) {
	best := -1
	first, last := s.diagonals(begin, d)
	for k := first; k <= last; k += 2 {
		at := s.forward[s.zero+k]
		if gone := at + at - k - s.x0 - s.y0; at >= s.x0 && gone > best {
			best, x, y = gone, at, at-k
		}
	}
	first, last = s.diagonals(end, d)
	for k := first; k <= last; k += 2 {
		at := s.backward[s.zero+k]
		if gone := s.x1 + s.y1 - at - at + k; at <= s.x1 && gone > best {
			best, x, y = gone, at, at-k
		}
	}
	return x, y
}
