package files

import (
	"bytes"

	"github.com/carrel-dev/carrel/shell/regex"
	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tool/linediff"
)

// text is a file as a list of lines.
type text struct {
	lines [][]byte // without their ends
	noEnd bool     // the last has no newline
}

// splitText splits a file into lines.
func splitText(b []byte) text {
	t := text{noEnd: len(b) > 0 && b[len(b)-1] != '\n'}
	t.lines = make([][]byte, 0, bytes.Count(b, []byte{'\n'})+1)
	for len(b) > 0 {
		at := bytes.IndexByte(b, '\n')
		if at < 0 {
			t.lines = append(t.lines, b)
			break
		}
		t.lines = append(t.lines, b[:at])
		b = b[at+1:]
	}
	return t
}

// sameness says which lines are equal, and which changes are ignored.
type sameness struct {
	fold, allSpace, spaceChange, trailing, tabs, blank, stripCR, minimal bool
	ignore                                                               *regex.Regexp
	context                                                              int // number of equal lines around changes that are compared too
	robust                                                               bool
}

// key returns the part of a line that is compared.
func (s *sameness) key(line, buf []byte) []byte {
	if !s.fold && !s.allSpace && !s.spaceChange && !s.trailing && !s.tabs {
		return line
	}
	buf = buf[:0]
	if s.trailing || s.spaceChange {
		line = bytes.TrimRight(line, " \t\v\f\r")
	}
	for i, col := 0, 0; i < len(line); i++ {
		b := line[i]
		switch {
		case s.allSpace && isSpace(b):
			continue
		case s.spaceChange && isSpace(b):
			if n := len(buf); n > 0 && buf[n-1] == ' ' {
				continue
			}
			b = ' '
		case s.tabs && b == '\t':
			for n := 8 - col%8; n > 0; n-- {
				buf = append(buf, ' ')
				col++
			}
			continue
		}
		if s.fold && b >= 'A' && b <= 'Z' {
			b += 32
		}
		buf = append(buf, b)
		col++
	}
	return buf
}

func isSpace(b byte) bool { return b == ' ' || b >= '\t' && b <= '\r' }

// change is one difference: lines of the first text at a were deleted, and lines of the second at b
// were inserted.
type change struct {
	a, del, b, ins int
	ignore         bool
}

// compareTexts finds the differences. ok is false when the process is being ended.
func compareTexts(c *tool.Call, a, b text, s *sameness) (script []change, ok bool) {
	if c.Pay(int64(len(a.lines)+len(b.lines))*64) != nil {
		return nil, false
	}
	prefix, suffix := commonEnds(a, b, s)
	la, lb := a.lines[prefix:len(a.lines)-suffix], b.lines[prefix:len(b.lines)-suffix]
	classes := map[string]int32{}
	var buf []byte
	number := func(t text, lines [][]byte) []int32 {
		out := make([]int32, len(lines))
		for i, line := range lines {
			if i%64 == 0 && !c.Step(64) {
				return nil
			}
			key := s.key(line, buf)
			if len(key) > 0 && len(line) > 0 && &key[0] != &line[0] {
				buf = key
			}
			if t.noEnd && suffix == 0 && i == len(lines)-1 && s.robust && !s.trailing && !s.spaceChange && !s.allSpace {
				key = append([]byte("\n"), key...) // equal only to another last line without an end
			}
			n, found := classes[string(key)]
			if !found {
				n = int32(len(classes) + 1)
				classes[string(key)] = n
			}
			out[i] = n
		}
		return out
	}
	na, nb := number(a, la), number(b, lb)
	if na == nil && len(la) > 0 || nb == nil && len(lb) > 0 {
		return nil, false
	}
	changes, ok := linediff.Changes(na, nb, len(classes)+1, linediff.Options{Step: c.Step, Minimal: s.minimal})
	if !ok {
		return nil, false
	}
	for _, found := range changes {
		ch := change{a: prefix + found.A, del: found.Del, b: prefix + found.B, ins: found.Ins}
		ch.ignore = s.trivial(a, b, ch)
		script = append(script, ch)
	}
	return script, true
}

// commonEnds counts the equal lines at both ends that need no comparison. It leaves the lines of
// the context to the comparison.
func commonEnds(a, b text, s *sameness) (prefix, suffix int) {
	n := min(len(a.lines), len(b.lines))
	lastA, lastB := len(a.lines)-1, len(b.lines)-1
	for prefix < n && bytes.Equal(a.lines[prefix], b.lines[prefix]) && !(a.noEnd && prefix == lastA) && !(b.noEnd && prefix == lastB) {
		prefix++
	}
	if !s.robust || a.noEnd == b.noEnd {
		for suffix < n-prefix && bytes.Equal(a.lines[lastA-suffix], b.lines[lastB-suffix]) {
			suffix++
		}
	}
	return max(prefix-s.context, 0), max(suffix-s.context, 0)
}

// trivial reports whether all lines of a change are blank (-B) or match -I.
func (s *sameness) trivial(a, b text, ch change) bool {
	if !s.blank && s.ignore == nil {
		return false
	}
	all := func(lines [][]byte) bool {
		for _, line := range lines {
			if s.blank {
				l := line
				if s.allSpace || s.spaceChange || s.trailing {
					l = bytes.TrimRight(l, " \t\v\f\r")
				}
				if len(l) == 0 {
					continue
				}
			}
			if s.ignore == nil || !s.ignore.Match(line) {
				return false
			}
		}
		return true
	}
	return all(a.lines[ch.a:ch.a+ch.del]) && all(b.lines[ch.b:ch.b+ch.ins])
}
