package search

import (
	"unicode/utf8"
)

// text reads the text of a, i and c. It follows a backslash and one newline, or stands on the same
// line. The first byte after the backslash is literal.
func (p *sedParser) text(c *sedCmd) error {
	p.blanks()
	if !p.more() {
		return p.fail("expected \\ after `a', `c' or `i'")
	}
	var b []byte
	if p.peek() != '\\' && p.posix {
		p.pos++
		return p.fail("expected \\ after `a', `c' or `i'")
	}
	if p.peek() == '\\' {
		p.pos++
		for _, c := range p.chunks {
			if p.posix && c.start == p.pos+1 {
				return p.failAt(p.pos, "incomplete command")
			}
		}
		if !p.more() {
			return nil
		}
		if p.peek() != '\n' {
			b = append(b, p.peek())
		}
		p.pos++
	}
	for p.more() && p.peek() != '\n' {
		b = append(b, p.peek())
		if p.pos++; b[len(b)-1] != '\\' {
			continue
		}
		if !p.more() { // the end of the script counts as a newline
			b = b[:len(b)-1]
			break
		}
		b = append(b, p.peek())
		p.pos++
	}
	if p.more() {
		p.pos++
	}
	b = append(b, '\n')
	for i := 0; i < len(b); i++ {
		if b[i] == '\\' && i+1 < len(b) {
			if v, n, ok := sedByte(string(b[i:min(i+8, len(b))])); ok {
				c.text = append(c.text, v)
				i += n - 1
				continue
			}
			i++
		}
		c.text = append(c.text, b[i])
	}
	return nil
}

// transliterate reads y.
func (p *sedParser) transliterate(c *sedCmd) error {
	if !p.more() {
		return p.fail("unterminated `y' command")
	}
	delim := p.s[p.pos]
	p.pos++
	from, ok := p.delimited(delim, false)
	to, ok2 := "", false
	if ok {
		to, ok2 = p.delimited(delim, false)
	}
	if !ok || !ok2 {
		return p.fail("unterminated `y' command")
	}
	a, err := p.yChars(from)
	if err != nil {
		return err
	}
	b, err := p.yChars(to)
	if err != nil {
		return err
	}
	if len(a) != len(b) {
		return p.fail("strings for `y' command are different lengths")
	}
	single := true
	c.y = map[string]string{}
	for i := range a {
		if _, ok := c.y[a[i]]; !ok {
			c.y[a[i]] = b[i]
		}
		single = single && len(a[i]) == 1 && len(b[i]) == 1
	}
	if single {
		c.y1 = new([256]byte)
		for i := range c.y1 {
			c.y1[i] = byte(i)
		}
		for f, t := range c.y {
			c.y1[f[0]] = t[0]
		}
	}
	return p.end()
}

// yChars splits a string of y into characters.
func (p *sedParser) yChars(s string) ([]string, error) {
	var out []string
	for i := 0; i < len(s); {
		if s[i] == '\\' && i+1 < len(s) {
			if s[i+1] == '\\' {
				out = append(out, "\\")
				i += 2
				continue
			}
			if v, n, ok := sedByte(s[i:]); ok {
				out = append(out, string([]byte{v}))
				i += n
				continue
			}
			out = append(out, "\\")
			i++
			continue
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		if p.bytes {
			n = 1
		}
		out = append(out, s[i:i+n])
		i += n
	}
	return out, nil
}
