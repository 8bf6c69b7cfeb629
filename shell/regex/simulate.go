package regex

import "unicode/utf8"

// condsAt returns the conditions that hold at a position of the text.
func (re *Regexp) condsAt(b []byte, at int) int {
	if re.prog.conds == 0 {
		return 0
	}
	wordBefore, wordAfter := false, false
	if re.prog.conds&condWords != 0 {
		if at > 0 {
			r, _ := utf8.DecodeLastRune(b[:at])
			wordBefore = isWord(r)
		}
		if at < len(b) {
			r, _ := utf8.DecodeRune(b[at:])
			wordAfter = isWord(r)
		}
	}
	c := conditions(at == 0, at > 0 && b[at-1] == '\n', wordBefore, at == len(b), at < len(b) && b[at] == '\n', wordAfter, re.flags&Lines != 0)
	if at == len(b)-1 && b[at] == '\n' {
		c |= condEndTextNL
	}
	return c
}

// pikeState is the working memory of a simulation.
type pikeState struct {
	cur, next []thread
	mark      []uint32
	gen       uint32
	visits    int
	stack     []thread
	free      [][]int
}

// thread is one partial match.
type thread struct {
	pc   uint32
	caps []int
}

// simulate follows all possible matches at once. With loc it records as many submatches as loc has
// room for.
func (re *Regexp) simulate(b []byte, from int, anchored bool, loc []int) bool {
	ps := &re.pike
	if ps.mark == nil {
		ps.mark = make([]uint32, len(re.prog.insts))
	}
	ps.cur, ps.next = ps.cur[:0], ps.next[:0]
	ncap := max(len(loc), 2)
	matched := false
	best := make([]int, ncap)
	for at := from; ; at++ {
		if len(ps.cur) == 0 && (matched || anchored && at > from) {
			break
		}
		if !re.pay(10 + 20*len(ps.cur)) {
			return false
		}
		if !matched && (at == from || !anchored) {
			caps := re.newCaps(ncap)
			for i := range caps {
				caps[i] = -1
			}
			caps[0] = at
			ps.cur = append(ps.cur, thread{re.prog.start, caps})
		}
		// Follow what takes no byte.
		ps.gen++
		conds := re.condsAt(b, at)
		var ready []thread
		ready = ps.next[:0]
		for _, t := range ps.cur {
			ready = re.follow(ready, t, at, conds)
		}
		ps.next = ready
		if !re.pay(20 * (len(ready) + ps.visits)) {
			return false
		}
		ps.visits = 0
		out := ps.cur[:0]
		for k, t := range ready {
			i := &re.prog.insts[t.pc]
			if matched && !re.first && t.caps[0] > best[0] {
				re.freeCaps(t.caps)
				continue
			}
			if i.code == iMatch {
				if !matched || re.first || t.caps[0] < best[0] || at > best[1] {
					copy(best, t.caps)
					best[1] = at
					matched = true
				}
				re.freeCaps(t.caps)
				if re.first || loc == nil {
					for _, u := range ready[k+1:] {
						re.freeCaps(u.caps)
					}
					break
				}
				continue
			}
			if at < len(b) {
				if o, ok := re.prog.take(i, b[at]); ok {
					out = append(out, thread{o, t.caps})
					continue
				}
			}
			re.freeCaps(t.caps)
		}
		ps.cur = out
		if at >= len(b) || matched && loc == nil {
			break
		}
	}
	for _, t := range ps.cur {
		re.freeCaps(t.caps)
	}
	ps.cur = ps.cur[:0]
	copy(loc, best)
	return matched
}

func (re *Regexp) newCaps(n int) []int {
	if k := len(re.pike.free); k > 0 {
		c := re.pike.free[k-1]
		re.pike.free = re.pike.free[:k-1]
		if cap(c) >= n {
			return c[:n]
		}
	}
	return make([]int, n)
}

func (re *Regexp) freeCaps(c []int) { re.pike.free = append(re.pike.free, c) }

// follow appends the threads that t becomes without reading a byte.
func (re *Regexp) follow(ready []thread, t thread, at, conds int) []thread {
	ps := &re.pike
	stack := append(ps.stack[:0], t)
	fork := func(t thread, a, b uint32) {
		c := re.newCaps(len(t.caps))
		copy(c, t.caps)
		stack = append(stack, thread{b, c}, thread{a, t.caps})
	}
	for len(stack) > 0 {
		t := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if ps.mark[t.pc] == ps.gen {
			re.freeCaps(t.caps)
			continue
		}
		ps.mark[t.pc] = ps.gen
		ps.visits++
		switch i := &re.prog.insts[t.pc]; i.code {
		case iSplit:
			fork(t, i.out, i.arg)
		case iLoop:
			if i.lazy {
				fork(t, i.arg, i.out)
			} else {
				fork(t, i.out, i.arg)
			}
		case iSave:
			if int(i.arg) < len(t.caps) {
				t.caps[i.arg] = at
			}
			stack = append(stack, thread{i.out, t.caps})
		case iMark, iKeep:
			stack = append(stack, thread{i.out, t.caps})
		case iAssert:
			if conds&int(i.arg) == int(i.arg) {
				stack = append(stack, thread{i.out, t.caps})
			} else {
				re.freeCaps(t.caps)
			}
		default:
			ready = append(ready, t)
		}
	}
	ps.stack = stack
	return ready
}

// job is an alternative not yet tried or, with slot >= 0, a submatch to restore.
type job struct {
	pc   uint32
	slot int32
	at   int
}

// maxVisited limits the memory for computing submatches, in bits.
const maxVisited = 1 << 20

// submatches fills re.loc for the match from s to e. It returns false when that would need too much
// memory.
func (re *Regexp) submatches(b []byte, s, e int) bool {
	width := e - s + 1
	if len(re.prog.insts) > maxVisited/width {
		return false
	}
	visited := re.visitedStates(width)
	if !re.pay(len(visited) + 100) {
		return false
	}
	jobs := append(re.jobs[:0], job{pc: re.prog.start, slot: -1, at: s})
	defer func() { re.jobs = jobs[:0] }()
	conds, condsAt := 0, -1
	for len(jobs) > 0 {
		j := jobs[len(jobs)-1]
		jobs = jobs[:len(jobs)-1]
		if j.slot >= 0 {
			re.loc[j.slot] = j.at
			continue
		}
		pc, at := j.pc, j.at
		for {
			bit := int(pc)*width + at - s
			if visited[bit>>6]&(1<<(bit&63)) != 0 {
				break
			}
			visited[bit>>6] |= 1 << (bit & 63)
			i := &re.prog.insts[pc]
			switch i.code {
			case iMatch:
				if at == e {
					return true
				}
			case iSplit:
				jobs = append(jobs, job{i.arg, -1, at})
				pc = i.out
				continue
			case iLoop:
				a, z := i.out, i.arg
				if i.lazy {
					a, z = z, a
				}
				jobs = append(jobs, job{z, -1, at})
				pc = a
				continue
			case iSave:
				jobs = append(jobs, job{slot: int32(i.arg), at: re.loc[i.arg]})
				re.loc[i.arg] = at
				pc = i.out
				continue
			case iMark, iKeep:
				pc = i.out
				continue
			case iAssert:
				if condsAt != at {
					conds, condsAt = re.condsAt(b, at), at
				}
				if conds&int(i.arg) == int(i.arg) {
					pc = i.out
					continue
				}
			case iByte:
				if at < e && b[at] >= i.lo && b[at] <= i.hi {
					pc = i.out
					at++
					continue
				}
			case iRanges:
				if at < e {
					if o, ok := re.prog.take(i, b[at]); ok {
						pc = o
						at++
						continue
					}
				}
			}
			break
		}
	}
	return false
}

// visitedStates returns an empty set of states: a bit for each instruction at each of width
// positions.
func (re *Regexp) visitedStates(width int) []uint64 {
	words := (len(re.prog.insts)*width + 63) / 64
	if cap(re.visited) < words {
		re.visited = make([]uint64, words)
	}
	visited := re.visited[:words]
	clear(visited)
	return visited
}
