package jq

import (
	"math"
	"strings"
	"unicode/utf8"
)

func addStrings(add func(string, int, func(m *vm, v any, a []any) (any, error))) {
	text := func(name, what string, f func(s string) (any, error)) {
		add(name, 0, func(m *vm, v any, _ []any) (any, error) {
			s, ok := v.(string)
			if !ok {
				return nil, errorf("%s %s", described(v), what)
			}
			if err := m.step(1 + len(s)>>6); err != nil {
				return nil, err
			}
			return f(s)
		})
	}
	change := func(name, what string, f func(s string) string) {
		text(name, what, func(s string) (any, error) { return f(s), nil })
	}
	space := " \t\n\r\f\v"
	change("ascii_downcase", "cannot be ascii_downcased", func(s string) string { return asciiCase(s, 'A', 'Z') })
	change("ascii_upcase", "cannot be ascii_upcased", func(s string) string { return asciiCase(s, 'a', 'z') })
	change("trim", "cannot be trimmed", func(s string) string { return strings.Trim(s, space) })
	change("ltrim", "cannot be trimmed", func(s string) string { return strings.TrimLeft(s, space) })
	change("rtrim", "cannot be trimmed", func(s string) string { return strings.TrimRight(s, space) })
	text("utf8bytelength", "only strings have UTF-8 byte length", func(s string) (any, error) { return float64(len(s)), nil })
	text("explode", "cannot be exploded", func(s string) (any, error) {
		out := make([]any, 0, len(s))
		for _, r := range s {
			out = append(out, float64(r))
		}
		return out, nil
	})
	add("implode", 0, implode)
	add("tonumber", 0, func(_ *vm, v any, _ []any) (any, error) { return toNumber(v) })
	add("split", 1, func(m *vm, v any, a []any) (any, error) {
		s, ok1 := v.(string)
		sep, ok2 := a[0].(string)
		if !ok1 || !ok2 {
			return nil, errorf("split input and separator must be strings")
		}
		return m.split(s, sep)
	})
	add("join", 1, (*vm).join)
	add("startswith", 1, func(_ *vm, v any, a []any) (any, error) {
		return affix(v, a[0], "startswith() requires string inputs", strings.HasPrefix)
	})
	add("endswith", 1, func(_ *vm, v any, a []any) (any, error) {
		return affix(v, a[0], "endswith() requires string inputs", strings.HasSuffix)
	})
	add("ltrimstr", 1, func(_ *vm, v any, a []any) (any, error) { return trimmed(v, a[0], strings.TrimPrefix), nil })
	add("rtrimstr", 1, func(_ *vm, v any, a []any) (any, error) { return trimmed(v, a[0], strings.TrimSuffix), nil })
	add("trimstr", 1, func(_ *vm, v any, a []any) (any, error) {
		return trimmed(trimmed(v, a[0], strings.TrimPrefix), a[0], strings.TrimSuffix), nil
	})
	add("_match", 2, func(m *vm, v any, a []any) (any, error) { return m.matches(v, a[0], a[1], false) })
	add("_test", 2, func(m *vm, v any, a []any) (any, error) { return m.matches(v, a[0], a[1], true) })
	add("indices", 1, func(m *vm, v any, a []any) (any, error) { return m.indices(v, a[0]) })
	add("_indices", 1, func(m *vm, v any, a []any) (any, error) { return m.indices(v, a[0]) })
	add("index", 1, func(m *vm, v any, a []any) (any, error) { return m.indexOf(v, a[0], false) })
	add("rindex", 1, func(m *vm, v any, a []any) (any, error) { return m.indexOf(v, a[0], true) })
}

// asciiCase changes the case of the ASCII letters from from to to.
func asciiCase(s string, from, to byte) string {
	b := []byte(s)
	for i, c := range b {
		if c >= from && c <= to {
			b[i] = c ^ 0x20
		}
	}
	return string(b)
}

func implode(_ *vm, v any, _ []any) (any, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, errorf("implode input must be an array")
	}
	var b strings.Builder
	for _, x := range list {
		n, ok := number(x)
		if !ok || math.IsNaN(n) {
			return nil, errorf("%s can't be imploded, unicode codepoint needs to be numeric", described(x))
		}
		r := rune(utf8.RuneError)
		if n >= 0 && n <= utf8.MaxRune {
			r = rune(n)
		}
		b.WriteRune(r)
	}
	return b.String(), nil
}

func (m *vm) join(v any, a []any) (any, error) {
	list, err := elements(v)
	if err != nil {
		return nil, err
	}
	sep, ok := a[0].(string)
	if !ok {
		if len(list) == 0 {
			return "", nil
		}
		return nil, errorf("%s and %s cannot be added", described(""), described(a[0]))
	}
	var b strings.Builder
	for i, x := range list {
		if i > 0 {
			b.WriteString(sep)
		}
		switch x := x.(type) {
		case nil:
		case string:
			b.WriteString(x)
		case bool, float64, Number:
			b.WriteString(Text(x))
		default:
			return nil, errorf("%s and %s cannot be added", described(b.String()), described(x))
		}
		if err := m.step(1 + b.Len()>>20); err != nil {
			return nil, err
		}
		if b.Len() > maxString {
			return nil, errorf("string too long")
		}
	}
	return m.str(b.String())
}

func affix(v, w any, message string, f func(s, t string) bool) (any, error) {
	s, ok1 := v.(string)
	t, ok2 := w.(string)
	if !ok1 || !ok2 {
		return nil, errorf("%s", message)
	}
	return f(s, t), nil
}

func trimmed(v, w any, f func(s, t string) string) any {
	s, ok1 := v.(string)
	t, ok2 := w.(string)
	if ok1 && ok2 {
		return f(s, t)
	}
	return v
}

// indices returns the positions of a value: in a string by characters, in an array as an element or
// a run of elements.
func (m *vm) indices(v, w any) (any, error) {
	out := []any{}
	switch v := v.(type) {
	case nil:
		return nil, nil
	case string:
		t, ok := w.(string)
		if !ok {
			return nil, errorf("Cannot determine indices of %s in a string", TypeName(w))
		}
		if t == "" {
			return nil, nil
		}
		if err := m.step(1 + len(v)>>2); err != nil {
			return nil, err
		}
		chars, at := 0, 0
		for i := 0; ; {
			n := strings.Index(v[i:], t)
			if n < 0 {
				return out, m.value(out)
			}
			i += n
			chars += utf8.RuneCountInString(v[at:i])
			at = i
			out = append(out, float64(chars))
			i++
		}
	case []any:
		if t, ok := w.([]any); ok {
			for i := 0; i+len(t) <= len(v) && len(t) > 0; i++ {
				if err := m.step(1); err != nil {
					return nil, err
				}
				j := 0
				for j < len(t) && m.cmp(v[i+j], t[j]) == 0 {
					j++
				}
				if j == len(t) {
					out = append(out, float64(i))
				}
			}
			if len(t) == 0 {
				return nil, nil
			}
			return out, m.value(out)
		}
		for i, x := range v {
			if m.cmp(x, w) == 0 {
				out = append(out, float64(i))
			}
		}
		return out, m.value(out)
	}
	return nil, errorf("Cannot index %s with %s", TypeName(v), TypeName(w))
}

func (m *vm) indexOf(v, w any, last bool) (any, error) {
	x, err := m.indices(v, w)
	list, _ := x.([]any)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	if last {
		return list[len(list)-1], nil
	}
	return list[0], nil
}
