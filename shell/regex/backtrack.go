package regex

import (
	"bytes"
	"slices"
)

// maxBacktrack is the most instructions of one search.
const maxBacktrack = 10_000_000

// maxJobs is the most jobs that a backtracker remembers at once.
const maxJobs = 1 << 20

// backtracker is the working memory of the engine for hard patterns.
type backtracker struct {
	caps []int
	regs []int
	best []int
	jobs []btJob
	left int
	keep int
}

// btJob is an alternative not yet tried, or a value to restore.
type btJob struct {
	kind uint8 // 0: an alternative; restore 1: caps[pc]; 2: regs[pc]; 3: keep
	pc   uint32
	at   int
}

// backtrack looks for the leftmost match and fills re.loc.
func (re *Regexp) backtrack(b []byte, from int) bool {
	bt := &re.bt
	bt.left = maxBacktrack
	if bt.caps == nil {
		bt.caps = make([]int, re.prog.caps)
		bt.regs = make([]int, re.prog.regs)
		bt.best = make([]int, re.prog.caps)
	}
	if re.must != nil && !bytes.Contains(b[from:], re.must) {
		return false
	}
	for at := from; at <= len(b); at++ {
		if re.begin && at > 0 {
			return false
		}
		if re.bytes1 != nil {
			for at < len(b) && !re.bytes1[b[at]] {
				at++
			}
			if at == len(b) {
				return false
			}
		}
		for i := range bt.caps {
			bt.caps[i] = -1
		}
		for i := range bt.regs {
			bt.regs[i] = -1
		}
		bt.keep, bt.jobs = -1, bt.jobs[:0]
		end := re.try(b, re.prog.start, at, -1, !re.first)
		if re.err != nil {
			return false
		}
		if end >= 0 {
			copy(re.loc, bt.best)
			re.loc[0], re.loc[1] = at, end
			if bt.keep >= 0 {
				re.loc[0] = bt.keep
			}
			return true
		}
	}
	return false
}

// try runs the program from pc and returns the end of the match, or -1 when it does not match. With
// longest it looks for the longest match, otherwise for the first. With exact >= 0 the match must
// end there. Submatches are in best and, without longest, in caps.
func (re *Regexp) try(b []byte, pc uint32, at, exact int, longest bool) int {
	bt := &re.bt
	base := len(bt.jobs)
	found := -1
	bt.jobs = append(bt.jobs, btJob{pc: pc, at: at})
	for len(bt.jobs) > base {
		j := bt.jobs[len(bt.jobs)-1]
		bt.jobs = bt.jobs[:len(bt.jobs)-1]
		switch j.kind {
		case 1:
			bt.caps[j.pc] = j.at
			continue
		case 2:
			bt.regs[j.pc] = j.at
			continue
		case 3:
			bt.keep = j.at
			continue
		}
		end := re.run(b, j.pc, j.at, exact)
		if re.err != nil {
			bt.jobs = bt.jobs[:base]
			return -1
		}
		if end < 0 || end <= found {
			continue
		}
		found = end
		copy(bt.best, bt.caps)
		if !longest || end == len(b) {
			break
		}
	}
	// If the whole pattern fails later, the caller must restore the values. So alternatives are
	// dropped, and values are kept.
	kept := bt.jobs[:base]
	for _, j := range bt.jobs[base:] {
		if j.kind != 0 {
			kept = append(kept, j)
		}
	}
	bt.jobs = kept
	return found
}

// undo restores the values changed since base.
func (re *Regexp) undo(base int) {
	bt := &re.bt
	for len(bt.jobs) > base {
		j := bt.jobs[len(bt.jobs)-1]
		bt.jobs = bt.jobs[:len(bt.jobs)-1]
		switch j.kind {
		case 1:
			bt.caps[j.pc] = j.at
		case 2:
			bt.regs[j.pc] = j.at
		case 3:
			bt.keep = j.at
		}
	}
}

// run follows one alternative until it matches or fails. It returns the end of the match, or -1.
func (re *Regexp) run(b []byte, pc uint32, at, exact int) int {
	bt := &re.bt
	for {
		if bt.left--; bt.left <= 0 || len(bt.jobs) > maxJobs {
			re.err = ErrTooHard
			return -1
		}
		if bt.left&0xfff == 0 && !re.pay(0x1000*8) {
			return -1
		}
		i := &re.prog.insts[pc]
		switch i.code {
		case iMatch:
			if exact >= 0 && at != exact {
				return -1
			}
			return at
		case iByte:
			if at >= len(b) || b[at] < i.lo || b[at] > i.hi {
				return -1
			}
			at++
			pc = i.out
		case iRanges:
			if at >= len(b) {
				return -1
			}
			o, ok := re.prog.take(i, b[at])
			if !ok {
				return -1
			}
			at++
			pc = o
		case iFail:
			return -1
		case iSplit:
			bt.jobs = append(bt.jobs, btJob{0, i.arg, at})
			pc = i.out
		case iSave:
			bt.jobs = append(bt.jobs, btJob{1, i.arg, bt.caps[i.arg]})
			bt.caps[i.arg] = at
			pc = i.out
		case iMark:
			bt.jobs = append(bt.jobs, btJob{2, i.reg, bt.regs[i.reg]})
			bt.regs[i.reg] = at
			pc = i.out
		case iLoop:
			switch {
			case bt.regs[i.reg] == at:
				pc = i.arg
			case i.lazy:
				bt.jobs = append(bt.jobs, btJob{0, i.out, at})
				pc = i.arg
			default:
				bt.jobs = append(bt.jobs, btJob{0, i.arg, at})
				pc = i.out
			}
		case iAssert:
			if re.condsAt(b, at)&int(i.arg) != int(i.arg) {
				return -1
			}
			pc = i.out
		case iKeep:
			bt.jobs = append(bt.jobs, btJob{3, 0, bt.keep})
			bt.keep = at
			pc = i.out
		case iBack:
			s, e := bt.caps[2*i.arg], bt.caps[2*i.arg+1]
			if s < 0 || e < s || len(b)-at < e-s {
				return -1
			}
			bt.left -= (e - s) / 8
			if i.lazy {
				if !bytes.EqualFold(b[s:e], b[at:at+e-s]) {
					return -1
				}
			} else if !bytes.Equal(b[s:e], b[at:at+e-s]) {
				return -1
			}
			at += e - s
			pc = i.out
		case iAtomic:
			base := len(bt.jobs)
			end := re.try(b, i.arg, at, -1, false)
			if end < 0 {
				re.undo(base)
				return -1
			}
			at = end
			pc = i.out
		case iLook:
			if !re.look(b, i, at) {
				return -1
			}
			pc = i.out
		}
	}
}

// look reports whether a look-around holds.
func (re *Regexp) look(b []byte, i *inst, at int) bool {
	bt := &re.bt
	base := len(bt.jobs)
	best := slices.Clone(bt.best)
	ok := false
	if !i.back {
		ok = re.try(b, i.arg, at, -1, false) >= 0
	} else {
		for back := int(i.min); back <= int(i.max) && back <= at && !ok && re.err == nil; back++ {
			if ok = re.try(b, i.arg, at-back, at, false) >= 0; !ok {
				re.undo(base)
			}
		}
	}
	copy(bt.best, best)
	if !ok || i.neg {
		re.undo(base)
	}
	return ok != i.neg && re.err == nil
}
