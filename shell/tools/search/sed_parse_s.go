package search

import (
	"strings"

	"github.com/carrel-dev/carrel/shell/regex"
)

// lead reports whether a byte begins a character of several bytes.
func (p *sedParser) lead(c byte) bool { return c >= 0xc2 && c <= 0xf4 && !p.bytes }

// subst reads s.
func (p *sedParser) subst(c *sedCmd) error {
	if !p.more() {
		return p.fail("unterminated `s' command")
	}
	delim := p.s[p.pos]
	if p.lead(delim) {
		return p.fail("delimiter character is not a single-byte character")
	}
	if delim == '\n' || delim == '\\' {
		return p.fail("unterminated `s' command")
	}
	p.pos++
	text, ok := p.delimited(delim, true)
	repl, ok2 := "", false
	if ok {
		repl, ok2 = p.delimited(delim, false)
	}
	if !ok || !ok2 {
		return p.fail("unterminated `s' command")
	}
	s := &sedSubst{}
	c.sub = s
	var flags regex.Flags
	for done := false; !done; {
		switch ch := p.peek(); {
		case p.posix && ch != 0 && strings.IndexByte("iImMe", ch) >= 0:
			p.pos++
			return p.fail("unknown option to `s'")
		case ch == 'i' || ch == 'I':
			flags |= regex.IgnoreCase
			p.pos++
		case ch == 'm' || ch == 'M':
			flags |= regex.Multi
			p.pos++
		case ch == 'g':
			p.pos++
			if s.global {
				return p.fail("multiple `g' options to `s' command")
			}
			s.global = true
		case ch == 'p':
			p.pos++
			if s.print > 0 {
				return p.fail("multiple `p' options to `s' command")
			}
			if s.print = 1; s.eval {
				s.print = 2 // after it was run
			}
		case isDigit(ch):
			if s.nth > 0 {
				p.pos++
				return p.fail("multiple number options to `s' command")
			}
			n := p.number()
			if n == 0 {
				return p.fail("number option to `s' command may not be zero")
			}
			s.nth = int(min(n, 1<<30))
		case ch == 'e':
			p.pos++
			if p.sandbox {
				return p.fail("e/r/w commands disabled in sandbox mode")
			}
			s.eval = true
		case ch == 'w':
			p.pos++
			if p.sandbox {
				return p.fail("e/r/w commands disabled in sandbox mode")
			}
			name, err := p.fileName()
			if err != nil {
				return err
			}
			if err := p.output(true, name, &s.out); err != nil {
				return err
			}
			done = true
		case ch == '}' || ch == '#':
			done = true
		case ch == '\n' || ch == ';':
			p.pos++
			done = true
		case !p.more():
			done = true
		case ch == '\r' && strings.HasPrefix(p.s[p.pos:], "\r\n"):
			p.pos += 2
			done = true
		case ch == ' ' || ch == '\t':
			p.pos++
		default:
			p.pos++
			return p.fail("unknown option to `s'")
		}
	}
	var err error
	if s.re, err = p.regex(text, flags); err != nil {
		return err
	}
	return p.replacement(s, repl)
}

// replacement reads the replacement of s.
func (p *sedParser) replacement(s *sedSubst, text string) error {
	part := sedPart{group: -1}
	flush := func() {
		s.parts = append(s.parts, part)
		part = sedPart{group: -1}
	}
	most := 0
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '&':
			part.group = 0
			flush()
		case c != '\\' || i+1 == len(text):
			part.text = append(part.text, c)
		default:
			i++
			d := text[i]
			switch {
			case d == 'c' && i+1 == len(text): // the backslash alone stays
				part.text = append(part.text, '\\')
			case d == 'c' && text[i+1] == '\\' && (i+2 == len(text) || text[i+2] != '\\'):
				return p.fail("recursive escaping after \\c not allowed")
			case isDigit(d):
				part.group = int(d - '0')
				most = max(most, part.group)
				flush()
			case strings.IndexByte("ULEul", d) >= 0 && !p.posix:
				part.mode = d
				s.cases = true
				flush()
			default:
				if v, n, ok := sedByte(text[i-1:]); ok {
					part.text = append(part.text, v)
					i += n - 2
				} else {
					part.text = append(part.text, d)
				}
			}
		}
	}
	flush()
	if s.re.re != nil && !p.posix && most > s.re.re.NumSubexp() {
		return p.fail("invalid reference \\%d on `s' command's RHS", most)
	}
	return nil
}

// fileName reads a file name, which is the rest of the line.
func (p *sedParser) fileName() (string, error) {
	p.blanks()
	name, _, _ := strings.Cut(p.s[p.pos:], "\n")
	p.pos += len(name)
	if name == "" {
		return "", p.fail("missing filename in r/R/w/W commands")
	}
	return name, nil
}
