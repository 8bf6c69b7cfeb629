package search

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// substitute runs s.
func (s *sed) substitute(c *sedSubst) {
	re := s.regex(c.re)
	if re == nil {
		return
	}
	b := s.ps.b
	simple := len(c.parts) == 1 && c.parts[0].group < 0 && !c.cases
	at, copied, prev, count := 0, 0, -1, 0
	did := false
	s.buf = s.buf[:0]
	for at <= len(b) {
		var start, end int
		var loc []int
		if simple {
			start, end = re.re.FindIndex(b, at)
		} else if loc = re.re.FindSubmatchIndex(b, at); loc == nil {
			start = -1
		} else {
			start, end = loc[0], loc[1]
		}
		if start < 0 {
			break
		}
		if start == end && start == prev { // nothing, right behind a match
			at = start + runeSize(b[start:])
			prev = -1
			if start == len(b) {
				break
			}
			continue
		}
		count++
		if count >= max(c.nth, 1) {
			did = true
			s.buf = append(s.buf, b[copied:start]...)
			if simple {
				s.buf = append(s.buf, c.parts[0].text...)
			} else {
				s.replace(c, b, loc)
			}
			copied = end
			if s.err != nil || !c.global {
				break
			}
			if len(s.buf) > 4096 && s.grow(len(s.buf)+len(b)) != nil {
				return
			}
		}
		prev = end
		if at = end; start == end {
			at += runeSize(b[end:])
			if end == len(b) {
				break
			}
		}
		if !s.step(1) {
			return
		}
	}
	if re.re.Err() != nil {
		s.broken(re)
		return
	}
	if !did || s.err != nil {
		return
	}
	s.buf = append(s.buf, b[copied:]...)
	s.ps.b, s.buf = s.buf, b
	if len(s.ps.b) > 4096 && s.grow(len(s.ps.b)) != nil {
		return
	}
	s.replaced = true
	if c.print == 1 {
		s.print(s.out, s.ps.b, s.ps.chomped)
	}
	if c.eval {
		s.evaluate("")
	}
	if c.print == 2 {
		s.print(s.out, s.ps.b, s.ps.chomped)
	}
	if c.out != nil {
		s.print(c.out, s.ps.b, s.ps.chomped)
	}
}

// runeSize returns the length of the first character, at least 1.
func runeSize(b []byte) int {
	if len(b) == 0 || b[0] < utf8.RuneSelf {
		return 1
	}
	_, n := utf8.DecodeRune(b)
	return max(n, 1)
}

// replace appends the replacement of one match.
func (s *sed) replace(c *sedSubst, b []byte, loc []int) {
	var mode, once byte
	add := func(text []byte) {
		if len(text) == 0 {
			return
		}
		if n := len(s.buf) + len(text); n > 4096 && s.grow(n) != nil {
			return
		}
		if mode == 0 && once == 0 {
			s.buf = append(s.buf, text...)
			return
		}
		if once != 0 {
			n := runeSize(text)
			head := text[:n]
			if once == 'u' {
				head = bytes.Map(unicode.ToUpper, head)
			} else {
				head = bytes.Map(unicode.ToLower, head)
			}
			s.buf = append(s.buf, head...)
			text, once = text[n:], 0
		}
		switch mode {
		case 'U':
			text = bytes.Map(unicode.ToUpper, text)
		case 'L':
			text = bytes.Map(unicode.ToLower, text)
		}
		s.buf = append(s.buf, text...)
	}
	for i := range c.parts {
		p := &c.parts[i]
		add(p.text)
		if p.group >= 0 && 2*p.group+1 < len(loc) && loc[2*p.group] >= 0 {
			add(b[loc[2*p.group]:loc[2*p.group+1]])
		}
		switch p.mode {
		case 'U', 'L':
			mode, once = p.mode, 0
		case 'E':
			mode = 0
		case 'u', 'l':
			once = p.mode
		}
		if s.err != nil {
			return
		}
	}
}
