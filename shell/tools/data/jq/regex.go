package jq

import (
	"strings"
	"unicode/utf8"

	"github.com/carrel-dev/carrel/shell/regex"
)

// Expressions have Perl's syntax as Oniguruma reads it. Most run in linear time. The others pay by
// steps.

// regex compiles a pattern with jq's flags.
func (m *vm) regex(pattern string, flags any) (re *regex.Regexp, global, noEmpty bool, err error) {
	f, ok := flags.(string)
	if !ok && flags != nil {
		return nil, false, false, errorf("%s is not a string", described(flags))
	}
	mode := regex.Perl | regex.Unicode
	extended := false
	for _, c := range f {
		switch c {
		case 'g':
			global = true
		case 'i':
			mode |= regex.IgnoreCase
		case 'n':
			noEmpty = true
		case 'p':
			mode |= regex.DotAll
		case 'x':
			extended = true
		case 's', 'l': // as they are
		default:
			return nil, false, false, errorf("%s is not a valid modifier string", f)
		}
	}
	key := f + "/" + pattern
	if re := m.regexes[key]; re != nil {
		return re, global, noEmpty, nil
	}
	src := pattern
	if extended {
		src = strip(src)
	}
	re, rerr := regex.CompileFor(func(n int) bool { return m.step(n) == nil }, []string{oniguruma(src)}, mode)
	if rerr != nil {
		if err := m.step(1); err != nil {
			return nil, false, false, err
		}
		text := rerr.Error()
		for _, w := range onigurumaWords {
			if strings.Contains(text, w[0]) {
				text = w[1]
			}
		}
		return nil, false, false, errorf("%s (at offset 0) is not a valid regex: %s", pattern, text)
	}
	re.Memory(m.pay)
	if m.regexes == nil || len(m.regexes) > 100 {
		m.regexes = map[string]*regex.Regexp{}
	}
	m.regexes[key] = re
	return re, global, noEmpty, nil
}

// onigurumaWords maps PCRE's messages to Oniguruma's.
var onigurumaWords = [][2]string{
	{"missing closing parenthesis", "end pattern with unmatched parenthesis"},
	{"unmatched closing parenthesis", "unmatched close parenthesis"},
	{"missing terminating ]", "premature end of char-class"},
	{"quantifier does not follow", "target of repeat operator is not specified"},
	{"range out of order", "empty range in char class"},
	{"reference to non-existent", "invalid backref number/name"},
	{"\\ at end of pattern", "end pattern at escape"},
}

// oniguruma translates an expression from Oniguruma's meaning to Perl's: $ also matches before a
// last newline, and \h is an h.
func oniguruma(s string) string {
	var b strings.Builder
	class := 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s):
			i++
			if s[i] != 'h' && s[i] != 'H' {
				b.WriteByte('\\')
			}
			b.WriteByte(s[i])
		case c == '[':
			class++
			b.WriteByte(c)
			if strings.HasPrefix(s[i+1:], "^") {
				i++
				b.WriteByte('^')
			}
			if strings.HasPrefix(s[i+1:], "]") {
				i++
				b.WriteByte(']')
			}
		case c == ']' && class > 0:
			class--
			b.WriteByte(c)
		case c == '$' && class == 0:
			b.WriteString(`\Z`)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// strip removes the spaces and comments that the extended syntax ignores.
func strip(s string) string {
	var b strings.Builder
	class := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s):
			b.WriteString(s[i : i+2])
			i++
			continue
		case c == '[':
			class = true
		case c == ']':
			class = false
		case class:
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			continue
		case c == '#':
			for i < len(s) && s[i] != '\n' {
				i++
			}
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// matches is _match(re; flags; testing).
func (m *vm) matches(v, pattern, flags any, testing bool) (any, error) {
	s, ok := v.(string)
	if !ok {
		return nil, errorf("%s cannot be matched, as it is not a string", described(v))
	}
	p, ok := pattern.(string)
	if !ok {
		return nil, errorf("%s cannot be matched, as it is not a string", described(pattern))
	}
	re, global, noEmpty, err := m.regex(p, flags)
	if err != nil {
		return nil, err
	}
	if err := m.step(1 + len(s)>>2); err != nil {
		return nil, err
	}
	in := []byte(s)
	f := finder{s: s, names: re.SubexpNames(), ascii: len(s) == utf8.RuneCountInString(s)}
	out := []any{}
	for at := 0; at <= len(s); {
		loc := re.FindSubmatchIndex(in, at)
		if err := re.Err(); err != nil {
			if m.step(stepBatch) != nil {
				return nil, ErrStop
			}
			return nil, errorf("%s (at offset 0) cannot be matched: %v", p, err)
		}
		if loc == nil {
			break
		}
		at = loc[1]
		if loc[0] == loc[1] {
			_, n := utf8.DecodeRuneInString(s[at:])
			at += max(n, 1)
			if noEmpty {
				continue
			}
		}
		if testing {
			return true, nil
		}
		if err := m.step(2 + len(loc)); err != nil {
			return nil, err
		}
		out = append(out, f.match(loc))
		if !global {
			break
		}
	}
	if testing {
		return false, nil
	}
	return out, m.value(out)
}

// finder makes the result objects for matches in one string.
type finder struct {
	s         string
	names     []string
	ascii     bool
	at, chars int // the same position in bytes and in characters
}

// offset converts a position to characters. It is fast for positions in ascending order.
func (f *finder) offset(i int) float64 {
	switch {
	case f.ascii:
		return float64(i)
	case i < f.at:
		return float64(utf8.RuneCountInString(f.s[:i]))
	}
	f.chars += utf8.RuneCountInString(f.s[f.at:i])
	f.at = i
	return float64(f.chars)
}

func (f *finder) match(loc []int) *Object {
	o := NewObject(4)
	text := f.s[loc[0]:loc[1]]
	start := f.offset(loc[0])
	o.Set("offset", start)
	o.Set("length", float64(utf8.RuneCountInString(text)))
	o.Set("string", text)
	caps := []any{}
	for i := 2; i < len(loc); i += 2 {
		c := NewObject(4)
		switch {
		case text == "": // as in jq, even if the group did not match
			c.Set("offset", start)
			c.Set("length", 0.0)
			c.Set("string", "")
		case loc[i] < 0:
			c.Set("offset", -1.0)
			c.Set("length", 0.0)
			c.Set("string", nil)
		default:
			c.Set("offset", f.offset(loc[i]))
			c.Set("length", float64(utf8.RuneCountInString(f.s[loc[i]:loc[i+1]])))
			c.Set("string", f.s[loc[i]:loc[i+1]])
		}
		c.Set("name", nil)
		if n := i/2 - 1; n < len(f.names) && f.names[n] != "" {
			c.Set("name", f.names[n])
		}
		caps = append(caps, c)
	}
	o.Set("captures", caps)
	return o
}
