package regex

// op is what a node is.
type op uint8

const (
	opEmpty  op = iota
	opSet       // one character of set
	opRaw       // one byte that is no character
	opCat       // subs in turn
	opAlt       // one of subs
	opRepeat    // subs[0] min to max times; max < 0: no limit
	opGroup     // subs[0] as submatch n
	opAssert    // empty, where the conditions n hold
	opBack      // what submatch n has
	opLook      // empty, where subs[0] matches (or not) ahead or behind
	opAtomic    // subs[0], never tried in another way later
	opKeep      // empty; the match begins here
)

// node is a piece of a pattern.
type node struct {
	op   op
	set  set
	raw  byte
	subs []*node
	n    int
	min  int
	max  int
	lazy bool
	fold bool // of opBack
	neg  bool // of opLook
	back bool // of opLook: behind
}

// Conditions of a position in the text, as bits.
const (
	condBeginText = 1 << iota
	condEndText
	condBeginLine
	condEndLine
	condWord      // at the edge of a word
	condNoWord    // not at the edge
	condWordStart // at its beginning
	condWordEnd
	condNoWordBefore // no word character precedes
	condNoWordAfter
	condEndTextNL // at the end, or before a newline at the end
)

// condWords are the conditions about words.
const condWords = condWord | condNoWord | condWordStart | condWordEnd | condNoWordBefore | condNoWordAfter

// dupMax is the largest count of a repetition, RE_DUP_MAX in glibc.
const dupMax = 32767

// maxDepth is the deepest nesting of groups.
const maxDepth = 250

func cat(subs ...*node) *node {
	if len(subs) == 1 {
		return subs[0]
	}
	return &node{op: opCat, subs: subs}
}

func alt(subs ...*node) *node {
	if len(subs) == 1 {
		return subs[0]
	}
	return &node{op: opAlt, subs: subs}
}

// hard reports whether a pattern needs the backtracking engine.
func (n *node) hard() bool {
	switch n.op {
	case opBack, opLook, opAtomic, opKeep:
		return true
	}
	for _, s := range n.subs {
		if s.hard() {
			return true
		}
	}
	return false
}

// conds returns all conditions of a pattern.
func (n *node) conds() int {
	c := 0
	if n.op == opAssert {
		c = n.n
	}
	for _, s := range n.subs {
		c |= s.conds()
	}
	return c
}

// inf is the width of a pattern without an upper limit.
const inf = 1 << 30

// width returns the least and the greatest number of bytes that a node matches.
func (n *node) width() (lo, hi int) {
	switch n.op {
	case opSet:
		return n.set.width()
	case opRaw:
		return 1, 1
	case opBack:
		return 0, inf
	case opGroup, opAtomic:
		return n.subs[0].width()
	case opCat:
		for _, s := range n.subs {
			l, h := s.width()
			lo, hi = min(lo+l, inf), min(hi+h, inf)
		}
		return lo, hi
	case opAlt:
		lo = inf
		for _, s := range n.subs {
			l, h := s.width()
			lo, hi = min(lo, l), max(hi, h)
		}
		return lo, hi
	case opRepeat:
		l, h := n.subs[0].width()
		lo = min(l*min(n.min, inf/(l+1)), inf)
		switch {
		case h == 0:
		case n.max < 0 || h >= inf:
			hi = inf
		default:
			hi = min(h*min(n.max, inf/(h+1)), inf)
		}
		return lo, hi
	}
	return 0, 0
}

// literal returns the bytes of a node that matches exactly one text.
func (n *node) literal() ([]byte, bool) {
	switch n.op {
	case opEmpty:
		return nil, true
	case opSet:
		if r, ok := n.set.single(); ok {
			return []byte(string(r)), true
		}
	case opRaw:
		return []byte{n.raw}, true
	case opCat:
		var out []byte
		for _, s := range n.subs {
			b, ok := s.literal()
			if !ok {
				return nil, false
			}
			out = append(out, b...)
		}
		return out, true
	}
	return nil, false
}

// must returns the longest literal that every match contains, or nil if none is known.
func (n *node) must() []byte {
	switch n.op {
	case opSet, opRaw:
		b, _ := n.literal()
		return b
	case opGroup, opAtomic:
		return n.subs[0].must()
	case opRepeat:
		if n.min > 0 {
			return n.subs[0].must()
		}
	case opCat:
		var best, run []byte
		for _, s := range n.subs {
			if s.op == opAssert || s.op == opEmpty {
				continue
			}
			if b, ok := s.literal(); ok {
				run = append(run, b...)
				if len(run) > len(best) {
					best = run[:len(run):len(run)]
				}
				continue
			}
			run = nil
			if b := s.must(); len(b) > len(best) {
				best = b
			}
		}
		return best
	}
	return nil
}
