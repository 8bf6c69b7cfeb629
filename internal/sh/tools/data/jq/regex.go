package jq

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// Regular expressions are Go's: they run in linear time and know neither look-around nor back-references.

// regex compiles a pattern with jq's flags.
func (m *vm) regex(pattern string, flags any) (re *regexp.Regexp, global, noEmpty bool, err error) {
	f, ok := flags.(string)
	if !ok && flags != nil {
		return nil, false, false, errorf("%s is not a string", described(flags))
	}
	mode := ""
	extended := false
	for _, c := range f {
		switch c {
		case 'g':
			global = true
		case 'i':
			mode += "i"
		case 'n':
			noEmpty = true
		case 's', 'p':
			mode += "s"
		case 'x':
			extended = true
		case 'l':
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
	if mode != "" {
		src = "(?" + mode + ")" + src
	}
	src = strings.NewReplacer(`\\`, `\\`, `\h`, `[0-9a-fA-F]`, `\H`, `[^0-9a-fA-F]`, `\Z`, `\n?\z`).Replace(src)
	if err := m.step(1 + len(src)); err != nil {
		return nil, false, false, err
	}
	re, rerr := regexp.Compile(src)
	if rerr != nil {
		text := strings.TrimPrefix(rerr.Error(), "error parsing regexp: ")
		return nil, false, false, errorf("%s (at offset 0) is not a valid regex: %s", pattern, text)
	}
	if m.regexes == nil || len(m.regexes) > 100 {
		m.regexes = map[string]*regexp.Regexp{}
	}
	m.regexes[key] = re
	return re, global, noEmpty, nil
}

// strip removes what the extended syntax does not count: spaces and comments.
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
	if testing {
		return re.MatchString(s), nil
	}
	n := 1
	if global {
		n = -1
	}
	out := []any{}
	ascii := len(s) == utf8.RuneCountInString(s)
	at, chars := 0, 0 // a place in bytes and in characters
	offset := func(i int) float64 {
		if ascii {
			return float64(i)
		}
		if i < at {
			return float64(utf8.RuneCountInString(s[:i]))
		}
		chars += utf8.RuneCountInString(s[at:i])
		at = i
		return float64(chars)
	}
	names := re.SubexpNames()
	for _, loc := range re.FindAllStringSubmatchIndex(s, n) {
		if noEmpty && loc[0] == loc[1] {
			continue
		}
		if err := m.step(2 + len(loc)); err != nil {
			return nil, err
		}
		o := NewObject(4)
		start := offset(loc[0])
		length := loc[1] - loc[0]
		if !ascii {
			length = utf8.RuneCountInString(s[loc[0]:loc[1]])
		}
		o.Set("offset", start)
		o.Set("length", float64(length))
		o.Set("string", s[loc[0]:loc[1]])
		caps := []any{}
		for i := 2; i < len(loc); i += 2 {
			c := NewObject(4)
			if loc[i] < 0 {
				c.Set("offset", -1.0)
				c.Set("length", 0.0)
				c.Set("string", nil)
			} else {
				c.Set("offset", float64(utf8.RuneCountInString(s[loc[0]:loc[i]]))+start)
				c.Set("length", float64(utf8.RuneCountInString(s[loc[i]:loc[i+1]])))
				c.Set("string", s[loc[i]:loc[i+1]])
			}
			c.Set("name", nil)
			if name := names[i/2]; name != "" {
				c.Set("name", name)
			}
			caps = append(caps, c)
		}
		o.Set("captures", caps)
		out = append(out, o)
	}
	return out, m.value(out)
}
