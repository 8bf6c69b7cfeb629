package syntax

import (
	"math"
	"strconv"
	"strings"
)

// source is a unit during parsing.
type source struct {
	unit int
	text string
	pos  int
	line int
}

// lexeme is one lexical element.
type lexeme struct {
	kind  token
	text  string // for names, strings and regular expressions
	num   float64
	unit  int
	line  int
	start int // offset of its start in the unit's text
}

// lexer splits units into lexemes. An included unit is read where it is named.
type lexer struct {
	units  []Unit
	stack  []source // the last is read
	queued []int    // units that follow
	warn   func(pos Pos, msg string)
}

// enter begins a unit. The rest of the current unit follows after it.
func (l *lexer) enter(unit int) {
	l.stack = append(l.stack, source{unit: unit, text: l.units[unit].Text, line: 1})
}

// top returns the current unit, or nil at the end of the last one.
func (l *lexer) top() *source {
	if len(l.stack) == 0 {
		return nil
	}
	return &l.stack[len(l.stack)-1]
}

// fail makes an error at a position.
func (l *lexer) fail(unit, line, at int, msg string) *Error {
	e := &Error{Line: line, Msg: msg}
	if unit >= len(l.units) {
		return e
	}
	u := l.units[unit]
	e.Unit = u.Name
	at = min(at, len(u.Text))
	begin := strings.LastIndexByte(u.Text[:at], '\n') + 1
	end := len(u.Text)
	if i := strings.IndexByte(u.Text[at:], '\n'); i >= 0 {
		end = at + i
	}
	e.Source, e.Column = u.Text[begin:end], at-begin
	return e
}

// leave ends a unit and begins the next one in the queue.
func (l *lexer) leave() {
	l.stack = l.stack[:len(l.stack)-1]
	if len(l.stack) == 0 && len(l.queued) > 0 {
		l.enter(l.queued[0])
		l.queued = l.queued[1:]
	}
}

// next returns the next lexeme. Each unit ends with a newline.
func (l *lexer) next() (lexeme, error) {
	s := l.top()
	if s == nil {
		return lexeme{kind: tokEOF, unit: len(l.units)}, nil
	}
	s.blanks()
	x := lexeme{unit: s.unit, line: s.line, start: s.pos}
	if s.pos == len(s.text) {
		l.leave()
		if l.top() == nil {
			return x, nil // kind is tokEOF
		}
		x.kind = tokNewline
		return x, nil
	}
	c := s.text[s.pos]
	switch {
	case c == '\n':
		s.pos++
		s.line++
		x.kind = tokNewline
	case isLetter(c):
		s.word(&x)
	case isDigit(c) || c == '.' && s.pos+1 < len(s.text) && isDigit(s.text[s.pos+1]):
		x.kind = tokNumber
		x.num = s.number()
	case c == '"':
		return l.quoted(s, x)
	case c == '@' && strings.HasPrefix(s.text[s.pos:], "@/"):
		s.pos += 2
		return l.expression(s, x, tokStrong)
	default:
		for n := 3; n > 0; n-- {
			if s.pos+n > len(s.text) {
				continue
			}
			if t, ok := operators[s.text[s.pos:s.pos+n]]; ok {
				x.kind = t
				s.pos += n
				return x, nil
			}
		}
		return x, l.fail(s.unit, s.line, s.pos, "invalid char '"+string(rune(c))+"' in expression")
	}
	return x, nil
}

// blanks skips the text between lexemes.
func (s *source) blanks() {
	for s.pos < len(s.text) {
		switch c := s.text[s.pos]; {
		case c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v':
			s.pos++
		case c == '\\' && strings.HasPrefix(s.text[s.pos:], "\\\n"):
			s.pos += 2
			s.line++
		case c == '\\' && strings.HasPrefix(s.text[s.pos:], "\\\r\n"):
			s.pos += 3
			s.line++
		case c == '#':
			n := strings.IndexByte(s.text[s.pos:], '\n')
			if n < 0 {
				n = len(s.text) - s.pos
			}
			s.pos += n
		default:
			return
		}
	}
}

func isLetter(c byte) bool { return c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }

// word reads a name or a reserved word. A name may have a namespace before it.
func (s *source) word(x *lexeme) {
	name := func() {
		for s.pos < len(s.text) && (isLetter(s.text[s.pos]) || isDigit(s.text[s.pos])) {
			s.pos++
		}
	}
	name()
	if rest := s.text[s.pos:]; len(rest) > 2 && rest[:2] == "::" && isLetter(rest[2]) {
		s.pos += 2
		name()
	}
	x.text = s.text[x.start:s.pos]
	switch {
	case keywords[x.text] != 0:
		x.kind = keywords[x.text]
	case builtins[x.text] != nil:
		x.kind = tokBuiltin
	case s.pos < len(s.text) && s.text[s.pos] == '(':
		x.kind = tokFuncName
	default:
		x.kind = tokName
	}
}

// number reads a number: decimal, 0x1F or 017.
func (s *source) number() float64 {
	rest := s.text[s.pos:]
	if len(rest) > 2 && rest[0] == '0' && rest[1]|0x20 == 'x' && hexValue(rest[2]) >= 0 {
		n, v := 2, 0.0
		for ; n < len(rest) && hexValue(rest[n]) >= 0; n++ {
			v = v*16 + float64(hexValue(rest[n]))
		}
		s.pos += n
		return v
	}
	n := decimal(rest)
	s.pos += n
	if digits := rest[:n]; n > 1 && digits[0] == '0' && strings.Trim(digits, "01234567") == "" {
		v := 0.0
		for i := range len(digits) {
			v = v*8 + float64(digits[i]-'0')
		}
		return v
	}
	v, err := strconv.ParseFloat(rest[:n], 64)
	if err != nil && !math.IsInf(v, 0) {
		return 0
	}
	return v
}

// decimal returns the length of the decimal number at the start of a text.
func decimal(s string) int {
	n := 0
	digits := func() {
		for n < len(s) && isDigit(s[n]) {
			n++
		}
	}
	digits()
	if n < len(s) && s[n] == '.' {
		n++
		digits()
	}
	if n < len(s) && s[n]|0x20 == 'e' {
		whole := n
		n++
		if n < len(s) && (s[n] == '+' || s[n] == '-') {
			n++
		}
		if n == len(s) || !isDigit(s[n]) {
			return whole
		}
		digits()
	}
	return n
}

func hexValue(c byte) int {
	switch {
	case isDigit(c):
		return int(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}

// quoted reads a string.
func (l *lexer) quoted(s *source, x lexeme) (lexeme, error) {
	from := s.pos + 1
	for i := from; i < len(s.text); i++ {
		switch s.text[i] {
		case '"':
			x.kind = tokString
			text, bad := Unescape(s.text[from:i])
			for _, c := range bad {
				if l.warn != nil {
					l.warn(Pos{x.unit, x.line}, "escape sequence `\\"+c+"' treated as plain `"+c+"'")
				}
			}
			x.text = text
			s.pos = i + 1
			return x, nil
		case '\\':
			if i++; i < len(s.text) && s.text[i] == '\n' {
				s.line++
			}
		case '\n':
			return x, l.fail(s.unit, x.line, x.start, "unterminated string")
		}
	}
	return x, l.fail(s.unit, x.line, x.start, "unterminated string")
}

// regex reads a regular expression whose opening slash was read as the division x.
func (l *lexer) regex(x lexeme) (lexeme, error) {
	s := l.top()
	if s == nil || s.unit != x.unit {
		return x, l.fail(x.unit, x.line, x.start+1, "unterminated regexp")
	}
	s.pos = x.start + 1
	return l.expression(s, x, tokRegex)
}

// expression reads a regular expression up to the closing slash. A slash in brackets does not close
// it.
func (l *lexer) expression(s *source, x lexeme, kind token) (lexeme, error) {
	var b strings.Builder
	from := s.pos
	for bracket := -1; s.pos < len(s.text); s.pos++ {
		c := s.text[s.pos]
		switch {
		case c == '\n':
			return x, l.fail(s.unit, s.line, from, "unterminated regexp")
		case c == '\\' && s.pos+1 < len(s.text):
			s.pos++
			if s.text[s.pos] == '\n' {
				s.line++
				continue
			}
			if s.text[s.pos] != '/' {
				b.WriteByte('\\')
			}
			b.WriteByte(s.text[s.pos])
			continue
		case bracket < 0 && c == '/':
			s.pos++
			x.kind, x.text = kind, b.String()
			return x, nil
		case bracket < 0 && c == '[':
			bracket = s.pos + 1
			if strings.HasPrefix(s.text[s.pos+1:], "^") {
				bracket++
			}
		case bracket >= 0 && c == '[' && s.pos+1 < len(s.text) &&
			strings.IndexByte(":.=", s.text[s.pos+1]) >= 0:
			if n := strings.Index(s.text[s.pos+2:], s.text[s.pos+1:s.pos+2]+"]"); n >= 0 &&
				!strings.Contains(s.text[s.pos:s.pos+2+n], "\n") {
				b.WriteString(s.text[s.pos : s.pos+n+4])
				s.pos += n + 3
				continue
			}
		case bracket >= 0 && c == ']' && s.pos > bracket:
			bracket = -1
		}
		b.WriteByte(c)
	}
	return x, l.fail(s.unit, s.line, from, "unterminated regexp")
}

// escapes are the letters of one-character escapes.
const (
	escapeLetters = `abfnrtv"\/`
	escapeValues  = "\a\b\f\n\r\t\v\"\\/"
)

// Unescape replaces the escapes of a string. bad are the escapes without a meaning.
func Unescape(s string) (text string, bad []string) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		if i++; i == len(s) {
			b.WriteByte('\\')
			break
		}
		c := s[i]
		switch at := strings.IndexByte(escapeLetters, c); {
		case at >= 0:
			b.WriteByte(escapeValues[at])
		case c == '\n':
		case c == '\r' && i+1 < len(s) && s[i+1] == '\n':
			i++
		case c >= '0' && c <= '7':
			v, n := 0, 0
			for ; n < 3 && i+n < len(s) && s[i+n] >= '0' && s[i+n] <= '7'; n++ {
				v = v*8 + int(s[i+n]-'0')
			}
			b.WriteByte(byte(v))
			i += n - 1
		case c == 'x' && i+1 < len(s) && hexValue(s[i+1]) >= 0:
			v, n := 0, 1
			for ; n < 3 && i+n < len(s) && hexValue(s[i+n]) >= 0; n++ {
				v = v*16 + hexValue(s[i+n])
			}
			b.WriteByte(byte(v))
			i += n - 1
		default:
			bad = append(bad, string(rune(c)))
			b.WriteByte(c)
		}
	}
	return b.String(), bad
}
