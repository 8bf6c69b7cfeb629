package files

import "bytes"

// patchJob applies hunks to one file.
type patchJob struct {
	p       *patcher
	t       text
	out     [][]byte
	noEnd   bool
	at      int // lines of t that are already in out
	delta   int // offset of the last hunk from its expected line
	inexact bool
	ignored bool // the patch was applied before
	creates bool // the patch says that the file does not exist before
}

// apply applies all hunks, and returns those that did not fit. ok is false when the process is
// being ended.
func (j *patchJob) apply(fp *filePatch) (rejected []patchHunk, ok bool) {
	p := j.p
	grown := 0
	reversed := p.reverse
	for n := 0; n < len(fp.hunks); n++ {
		h := fp.hunks[n]
		if reversed {
			h = invert(h)
		}
		where, fuzz, ok := j.locate(h)
		if !ok {
			return nil, false
		}
		if where < 0 && n == 0 {
			// The patch may have been applied before.
			back := invert(h)
			if w, f, ok := j.locate(back); ok && w >= 0 && f == 0 && !(h.oldN == 0 || h.newN == 0 && false) {
				kind := "Reversed (or previously applied)"
				if p.reverse {
					kind = "Unreversed"
				}
				switch {
				case p.forward:
					p.say("%s patch detected!  Skipping patch.\n", kind)
					for _, x := range fp.hunks {
						if reversed {
							x = invert(x)
						}
						rejected = append(rejected, x)
					}
					j.skipAll()
					j.ignored = true
					return rejected, true
				case p.batch:
					p.say("%s patch detected!  Assuming -R.\n", kind)
					reversed = !reversed
					j.inexact = true // so that there is a backup
					n--
					continue
				}
				p.say("%s patch detected!  Assume -R? [n] \nApply anyway? [n] \nSkipping patch.\n", kind)
				rejected = append(rejected, fp.hunks...)
				j.skipAll()
				j.ignored = true
				return rejected, true
			}
		}
		if where < 0 {
			p.say("Hunk #%d FAILED at %d.\n", n+1, max(h.from, 1)+grown)
			rejected = append(rejected, h)
			continue
		}
		off := where - (h.from - 1)
		if h.oldN == 0 {
			off = where - h.from
		}
		if off != 0 || fuzz > 0 {
			j.inexact = true
			text := ""
			if fuzz > 0 {
				text = " with fuzz " + itoa(fuzz)
			}
			if off != 0 {
				lines := "lines"
				if off == 1 {
					lines = "line"
				}
				text += " (offset " + itoa(off) + " " + lines + ")"
			}
			p.say("Hunk #%d succeeded at %d%s.\n", n+1, where+1+grown, text)
		}
		j.delta = off
		grown += h.newN - h.oldN
		j.use(h, where, fuzz)
	}
	j.skipAll()
	return rejected, true
}

func itoa(n int) string {
	if n < 0 {
		return "-" + itoa(-n)
	}
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + string(rune('0'+n%10))
}

// invert turns a hunk round.
func invert(h patchHunk) patchHunk {
	r := patchHunk{from: h.to, to: h.from, oldN: h.newN, newN: h.oldN, function: h.function, inputLine: h.inputLine}
	for _, l := range h.lines {
		switch l.op {
		case '-':
			l.op = '+'
		case '+':
			l.op = '-'
		}
		r.lines = append(r.lines, l)
	}
	return r
}

// context counts the lines of context at both ends of a hunk.
func (h patchHunk) context() (before, after int) {
	for before < len(h.lines) && h.lines[before].op == ' ' {
		before++
	}
	for after < len(h.lines) && h.lines[len(h.lines)-1-after].op == ' ' {
		after++
	}
	return before, after
}

// locate finds the place where a hunk fits, or -1.
func (j *patchJob) locate(h patchHunk) (where, fuzz int, ok bool) {
	var old []patchLine
	for _, l := range h.lines {
		if l.op != '+' {
			old = append(old, l)
		}
	}
	before, after := h.context()
	context := max(before, after)
	guess := h.from - 1 + j.delta
	if h.oldN == 0 {
		guess = h.from + j.delta
	}
	most := len(j.t.lines)
	for fuzz = 0; fuzz <= min(j.p.fuzz, context); fuzz++ {
		head := max(fuzz+before-context, 0)
		tail := max(fuzz+after-context, 0)
		if head+tail > len(old) {
			break
		}
		part := old[head : len(old)-tail]
		fits := func(at int) bool {
			at += head
			if at < j.at || at+len(part) > most {
				return false
			}
			for i, l := range part {
				if !j.same(j.t.lines[at+i], l.text) {
					return false
				}
			}
			return true
		}
		// A hunk with less context at its end than at its start belongs to the end of the file.
		// With less at its start, it belongs to the start.
		if fuzz == 0 && before < after && h.from <= 1 && len(old) > 0 {
			if fits(0) {
				return 0, 0, true
			}
			continue
		}
		if fuzz == 0 && after < before && len(old) > 0 {
			if at := most - len(old); at >= 0 && fits(at) {
				return at, 0, true
			}
			if !fits(guess) {
				continue
			}
			continue
		}
		if len(old) == 0 {
			if h.from == 0 && most > 0 && j.creates {
				return -1, 0, true
			}
			return min(max(guess, j.at), most), fuzz, true
		}
		if fits(guess) {
			return guess, fuzz, true
		}
		for d := 1; d <= most+len(part); d++ {
			if d%16 == 0 && !j.p.Step(4) {
				return 0, 0, false
			}
			if fits(guess + d) {
				return guess + d, fuzz, true
			}
			if fits(guess - d) {
				return guess - d, fuzz, true
			}
		}
	}
	return -1, 0, true
}

// same compares a line of the file with a line of the patch.
func (j *patchJob) same(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	if !j.p.ignoreSpace {
		return false
	}
	s := sameness{spaceChange: true}
	return bytes.Equal(s.key(a, nil), s.key(b, nil))
}

// use applies a hunk at a place.
func (j *patchJob) use(h patchHunk, where, fuzz int) {
	j.out = append(j.out, j.t.lines[j.at:max(where, j.at)]...)
	j.at = max(where, j.at)
	for _, l := range h.lines {
		switch l.op {
		case ' ':
			if j.at < len(j.t.lines) {
				j.out = append(j.out, j.t.lines[j.at])
				j.at++
			}
		case '-':
			j.at++
		default:
			j.out = append(j.out, l.text)
			if l.noEnd {
				j.noEnd = true
			}
		}
	}
	if j.at >= len(j.t.lines) {
		// The hunk contains the end of the file, so it decides whether there is a newline.
		j.t.noEnd = j.t.noEnd && len(h.lines) > 0 && h.lines[len(h.lines)-1].op == ' '
	}
}

// skipAll copies the rest of the file.
func (j *patchJob) skipAll() {
	if j.at < len(j.t.lines) {
		j.noEnd = false
		j.out = append(j.out, j.t.lines[j.at:]...)
		j.at = len(j.t.lines)
	}
	j.noEnd = j.noEnd || j.t.noEnd
}

// result is the patched file.
func (j *patchJob) result() []byte {
	if len(j.out) == 0 {
		return nil
	}
	b := append(bytes.Join(j.out, []byte{'\n'}), '\n')
	if j.noEnd {
		b = b[:len(b)-1]
	}
	return b
}
