package regex

import (
	"slices"
	"unicode/utf8"
)

// The kinds of text before a position, as bits.
const (
	prevNone = 1 << iota // nothing
	prevNL
	prevWord
)

// Transitions that are not plain states. A value of tMatch or less encodes a state in which a match
// was just found.
const (
	tUnknown = -1
	tDead    = -2
	tQuit    = -3
	tMatch   = -4
)

// maxTable limits an automaton's transitions. maxStates limits the bytes of its states.
const (
	maxTable  = 1 << 18
	maxStates = 4 << 20
)

// dfa is an automaton that is built during its use. A state is a set of instructions (in order of
// priority, if that matters) and the kind of text before the position. A match is reported one byte
// late, because conditions depend on the next byte.
type dfa struct {
	p       *prog
	lines   bool
	open    bool // a match may begin anywhere; otherwise only at the start of the search
	ordered bool // leftmost-first
	class   [256]uint8
	rep     []byte // a byte of each class
	eof     int
	stride  int
	trans   []int32
	states  []dstate
	index   map[string]int32
	starts  [8]int32
	resets  int
	held    int // bytes of the states
	scanned int
	quitAt  int // where a search gave up

	list, next []uint32
	mark       []uint32
	gen        uint32
	visits     int // instructions visited since the last payment
	stack      []uint32
	key        []byte
}

type dstate struct {
	pcs     []uint32
	prev    uint8
	asserts bool
}

func newDFA(p *prog, lines, open, ordered bool) *dfa {
	d := &dfa{p: p, lines: lines, open: open, ordered: ordered && !open, mark: make([]uint32, len(p.insts))}
	var edge [257]bool
	cut := func(lo, hi byte) { edge[lo], edge[int(hi)+1] = true, true }
	for _, i := range p.insts {
		if i.code == iByte {
			cut(i.lo, i.hi)
		}
	}
	for _, t := range p.tables {
		for _, r := range t {
			cut(r.lo, r.hi)
		}
	}
	if p.conds != 0 || lines {
		cut('\n', '\n')
	}
	if p.conds&condWords != 0 {
		for _, r := range []string{"09", "AZ", "__", "az", "\x80\xff"} {
			cut(r[0], r[1])
		}
	}
	n := -1
	for b := range 256 {
		if b == 0 || edge[b] {
			n++
			d.rep = append(d.rep, byte(b))
		}
		d.class[b] = uint8(n)
	}
	d.eof = n + 1
	d.stride = n + 2
	d.reset()
	return d
}

// reset forgets all states.
func (d *dfa) reset() {
	d.trans, d.states, d.index, d.held = d.trans[:0], d.states[:0], map[string]int32{}, 0
	for i := range d.starts {
		d.starts[i] = tUnknown
	}
}

// state returns the number of a state, multiplied by the stride.
func (d *dfa) state(pcs []uint32, prev uint8) int32 {
	if d.p.conds == 0 {
		prev = 0
	}
	if !d.ordered {
		slices.Sort(pcs)
	}
	d.key = append(d.key[:0], prev)
	for _, pc := range pcs {
		d.key = append(d.key, byte(pc), byte(pc>>8), byte(pc>>16))
	}
	if s, ok := d.index[string(d.key)]; ok {
		return s
	}
	if len(d.trans) > maxTable || d.held > maxStates {
		d.resets++
		d.reset()
	}
	asserts := false
	for _, pc := range pcs {
		asserts = asserts || d.p.insts[pc].code == iAssert
	}
	d.held += 96 + 5*len(d.key)
	s := int32(len(d.trans))
	d.states = append(d.states, dstate{slices.Clone(pcs), prev, asserts})
	for range d.stride {
		d.trans = append(d.trans, tUnknown)
	}
	d.index[string(d.key)] = s
	return s
}

// closure appends to list the instructions that can be reached from pc without reading a byte. It
// evaluates conditions if known, and otherwise keeps them.
func (d *dfa) closure(list []uint32, pc uint32, conds int, known bool) []uint32 {
	d.stack = append(d.stack[:0], pc)
	for len(d.stack) > 0 {
		pc := d.stack[len(d.stack)-1]
		d.stack = d.stack[:len(d.stack)-1]
		if d.mark[pc] == d.gen {
			continue
		}
		d.mark[pc] = d.gen
		d.visits++
		switch i := &d.p.insts[pc]; i.code {
		case iSplit:
			d.stack = append(d.stack, i.arg, i.out)
		case iLoop:
			if i.lazy {
				d.stack = append(d.stack, i.out, i.arg)
			} else {
				d.stack = append(d.stack, i.arg, i.out)
			}
		case iSave, iMark, iKeep:
			d.stack = append(d.stack, i.out)
		case iAssert:
			if !known {
				list = append(list, pc)
			} else if conds&int(i.arg) == int(i.arg) {
				d.stack = append(d.stack, i.out)
			}
		case iFail:
		default:
			list = append(list, pc)
		}
	}
	return list
}

func (d *dfa) newGen() {
	if d.gen++; d.gen == 0 {
		clear(d.mark)
		d.gen = 1
	}
}

// conds returns the conditions that hold between prev and the byte class c.
func (d *dfa) conds(prev uint8, c int) int {
	eof := c == d.eof
	var next byte
	if !eof {
		next = d.rep[c]
	}
	return conditions(prev&prevNone != 0, prev&prevNL != 0, prev&prevWord != 0, eof, !eof && next == '\n', !eof && next < utf8.RuneSelf && isWord(rune(next)), d.lines)
}

// conditions returns the conditions that hold at a position.
func conditions(start, afterNL, wordBefore, end, beforeNL, wordAfter, lines bool) int {
	c := 0
	if start || afterNL {
		c |= condBeginLine
	}
	if start || lines && afterNL {
		c |= condBeginText
	}
	if end || beforeNL {
		c |= condEndLine
	}
	if end || lines && beforeNL {
		c |= condEndText | condEndTextNL
	}
	if wordBefore != wordAfter {
		c |= condWord
		if wordAfter {
			c |= condWordStart
		} else {
			c |= condWordEnd
		}
	} else {
		c |= condNoWord
	}
	if !wordBefore {
		c |= condNoWordBefore
	}
	if !wordAfter {
		c |= condNoWordAfter
	}
	return c
}

func prevOf(b byte) uint8 {
	switch {
	case b == '\n':
		return prevNL
	case b < utf8.RuneSelf && isWord(rune(b)):
		return prevWord
	}
	return 0
}

// step computes a transition.
func (d *dfa) step(re *Regexp, s int32, c int) int32 {
	st := d.states[int(s)/d.stride]
	if c != d.eof && d.p.conds&condWords != 0 && d.rep[c] >= utf8.RuneSelf {
		d.trans[int(s)+c] = tQuit
		return tQuit
	}
	if d.resets > 8+d.scanned>>16 {
		return tQuit
	}
	pcs := st.pcs
	if st.asserts {
		d.newGen()
		conds := d.conds(st.prev, c)
		d.list = d.list[:0]
		for _, pc := range st.pcs {
			d.list = d.closure(d.list, pc, conds, true)
		}
		pcs = d.list
	}
	d.newGen()
	next := d.next[:0]
	matched := false
	for _, pc := range pcs {
		i := &d.p.insts[pc]
		if i.code == iMatch {
			matched = true
			if d.ordered {
				break
			}
			continue
		}
		if c == d.eof {
			continue
		}
		b := d.rep[c]
		if out, ok := d.p.take(i, b); ok {
			next = d.closure(next, out, 0, false)
		}
	}
	if d.open && c != d.eof {
		next = d.closure(next, d.p.start, 0, false)
	}
	d.next = next
	if !re.pay(100 + 30*(len(pcs)+len(next)+d.visits)) {
		return tDead // only for this search: it was stopped, and nothing is stored
	}
	d.visits = 0
	var t int32
	switch {
	case len(next) == 0 && !matched:
		t = tDead
	default:
		prev := uint8(0)
		if c != d.eof {
			prev = prevOf(d.rep[c])
		}
		before := d.resets
		t = d.state(next, prev)
		if !re.hold() {
			return tDead // likewise
		}
		if matched {
			t = tMatch - t
		}
		if d.resets != before {
			return t // s is no more
		}
	}
	d.trans[int(s)+c] = t
	return t
}

// take returns the next instruction after reading a byte.
func (p *prog) take(i *inst, b byte) (uint32, bool) {
	switch i.code {
	case iByte:
		return i.out, b >= i.lo && b <= i.hi
	case iRanges:
		for _, r := range p.tables[i.arg] {
			if b < r.lo {
				return 0, false
			}
			if b <= r.hi {
				return r.out, true
			}
		}
	}
	return 0, false
}

// start returns the state of a search that begins at from. ok is false when the text before from
// matters and is not ASCII.
func (d *dfa) start(b []byte, from int) (int32, bool) {
	prev := uint8(0)
	if d.p.conds != 0 {
		switch {
		case from == 0:
			prev = prevNone
		case b[from-1] >= utf8.RuneSelf && d.p.conds&condWords != 0:
			return 0, false
		default:
			prev = prevOf(b[from-1])
		}
	}
	if d.starts[prev] == tUnknown {
		d.newGen()
		d.next = d.closure(d.next[:0], d.p.start, 0, false)
		d.starts[prev] = d.state(d.next, prev)
	}
	return d.starts[prev], true
}

// search looks for matches that begin at from or later. It returns the end of the match that ends
// first, or -1. ok is false when the automaton can't decide; quitAt then has the position.
func (d *dfa) search(re *Regexp, b []byte, from int) (end int, ok bool) {
	s, ok := d.start(b, from)
	if !ok {
		d.quitAt = from
		return 0, false
	}
	i := from
	for i < len(b) {
		stop := min(len(b), i+1<<16)
		begin := i
		trans := d.trans
		for i < stop {
			t := trans[int(s)+int(d.class[b[i]])]
			if t < 0 {
				if t == tUnknown {
					t = d.step(re, s, int(d.class[b[i]]))
					trans = d.trans
				}
				if t < 0 {
					d.scanned += i - begin
					switch t {
					case tDead:
						return -1, re.pay(i - begin)
					case tQuit:
						d.quitAt = i
						return 0, false
					}
					return i, re.pay(i - begin)
				}
			}
			s = t
			i++
		}
		d.scanned += i - begin
		if !re.pay(i - begin) {
			d.quitAt = i
			return -1, true
		}
	}
	t := d.trans[int(s)+d.eof]
	if t == tUnknown {
		t = d.step(re, s, d.eof)
	}
	if t <= tMatch {
		return len(b), true
	}
	if t == tQuit {
		d.quitAt = i
		return 0, false
	}
	return -1, true
}

// longest returns the end of the longest match that begins at from, or -1. at is how far it has
// read.
func (d *dfa) longest(re *Regexp, b []byte, from int) (end, at int, ok bool) {
	s, ok := d.start(b, from)
	if !ok {
		return 0, 0, false
	}
	end = -1
	for i := from; ; i++ {
		c := d.eof
		if i < len(b) {
			c = int(d.class[b[i]])
		}
		t := d.trans[int(s)+c]
		if t < 0 {
			if t == tUnknown {
				t = d.step(re, s, c)
			}
			switch {
			case t == tDead:
				d.scanned += i - from
				return end, i, re.pay(i - from + 4)
			case t == tQuit:
				return 0, 0, false
			case t <= tMatch:
				end = i
				t = tMatch - t
			}
		}
		if i >= len(b) {
			d.scanned += i - from
			return end, i, re.pay(i - from + 4)
		}
		s = t
	}
}

// firstBytes returns the bytes that a match may begin with. It returns nil when a match may be
// empty or the bytes are not known.
func (p *prog) firstBytes() *[256]bool {
	var out [256]bool
	seen := make([]bool, len(p.insts))
	stack := []uint32{p.start}
	for len(stack) > 0 {
		pc := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if seen[pc] {
			continue
		}
		seen[pc] = true
		switch i := &p.insts[pc]; i.code {
		case iSplit, iLoop:
			stack = append(stack, i.arg, i.out)
		case iSave, iMark, iKeep, iAssert, iLook:
			stack = append(stack, i.out)
		case iAtomic:
			stack = append(stack, i.arg)
		case iByte:
			for b := int(i.lo); b <= int(i.hi); b++ {
				out[b] = true
			}
		case iRanges:
			for _, r := range p.tables[i.arg] {
				for b := int(r.lo); b <= int(r.hi); b++ {
					out[b] = true
				}
			}
		case iFail:
		default:
			return nil
		}
	}
	return &out
}
