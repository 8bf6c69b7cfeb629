package search

import (
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/regex"
)

// delimited reads up to an unescaped delimiter. It removes the backslash of an escaped delimiter or
// newline, which then has its meaning in the expression. In a replacement \& stays unchanged.
func (p *sedParser) delimited(delim byte, isRegex bool) (string, bool) {
	var b strings.Builder
	for p.more() {
		c := p.s[p.pos]
		switch {
		case c == delim:
			p.pos++
			return b.String(), true
		case c == '\n':
			return "", false
		case c == '\\' && p.pos+1 < len(p.s):
			d := p.s[p.pos+1]
			p.pos += 2
			if d != '\n' && (d != delim || !isRegex && d == '&') {
				b.WriteByte('\\')
			}
			b.WriteByte(d)
			continue
		case c == '[' && isRegex:
			end := bracketEnd(p.s, p.pos)
			b.WriteString(p.s[p.pos:end])
			p.pos = end
			continue
		}
		b.WriteByte(c)
		p.pos++
	}
	return "", false
}

// sedByte reads the escapes that sed replaces with characters: \n \t \f \v \a \r \cX \dNNN \oNNN
// \xHH.
func sedByte(s string) (c byte, n int, ok bool) {
	if len(s) < 2 {
		return 0, 0, false
	}
	if i := strings.IndexByte("afnrtv", s[1]); i >= 0 {
		return "\a\f\n\r\t\v"[i], 2, true
	}
	base, most := 0, 3
	switch s[1] {
	case 'c':
		if len(s) < 3 {
			return 0, 0, false
		}
		x := s[2]
		if x == '\\' && len(s) > 3 && s[3] == '\\' {
			return x ^ 0x40, 4, true
		}
		if x >= 'a' && x <= 'z' {
			x -= 32
		}
		return x ^ 0x40, 3, true
	case 'd':
		base = 10
	case 'o':
		base = 8
	case 'x':
		base, most = 16, 2
	default:
		return 0, 0, false
	}
	for n = most; n > 0; n-- {
		if len(s) < 2+n {
			continue
		}
		if v, err := strconv.ParseUint(s[2:2+n], base, 16); err == nil {
			return byte(v), 2 + n, true
		}
	}
	return 0, 0, false
}

// regex compiles an expression of the script.
func (p *sedParser) regex(text string, flags regex.Flags) (*sedRegex, error) {
	if text == "" {
		if flags != 0 {
			return nil, p.fail("cannot specify modifiers on empty regexp")
		}
		return &sedRegex{}, nil
	}
	if p.ext {
		flags |= regex.Extended
	} else {
		flags |= regex.NoTwice
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		c := text[i]
		if c == '[' {
			end := bracketEnd(text, i)
			for j := i; j < end; {
				if text[j] == '\\' && !p.strict {
					if ch, n, ok := sedByte(text[j:]); ok && text[j+1] != 'c' && j+n < end {
						b.WriteByte(ch)
						j += n
						continue
					}
				}
				b.WriteByte(text[j])
				j++
			}
			i = end
			continue
		}
		if c == '\\' && i+1 < len(text) {
			if strings.HasPrefix(text[i:], "\\c\\") && !strings.HasPrefix(text[i:], "\\c\\\\") {
				return nil, p.fail("recursive escaping after \\c not allowed")
			}
			if ch, n, ok := sedByte(text[i:]); ok {
				b.WriteByte(ch)
				i += n
				continue
			}
			b.WriteString(text[i : i+2])
			i += 2
			continue
		}
		b.WriteByte(c)
		i++
	}
	re, err := regex.CompileFor(p.budget, []string{b.String()}, flags)
	if err != nil {
		return nil, p.fail("%v", err)
	}
	if err := p.memory(int64(re.Size())); err != nil {
		return nil, err
	}
	return &sedRegex{re}, nil
}

// bracketEnd returns the end of a bracket expression, or the end of the text.
func bracketEnd(s string, i int) int {
	i++
	if i < len(s) && s[i] == '^' {
		i++
	}
	if i < len(s) && s[i] == ']' {
		i++
	}
	for i < len(s) {
		switch {
		case s[i] == ']':
			return i + 1
		case s[i] == '[' && i+1 < len(s) && strings.IndexByte(":.=", s[i+1]) >= 0:
			end := strings.Index(s[i+2:], s[i+1:i+2]+"]")
			if end < 0 {
				return len(s)
			}
			i += end + 4
			continue
		}
		i++
	}
	return len(s)
}
